"""Measure precision and recall of the entities dream on labelled conversations, without a language model.

`python -m bench.entities` prints JSON, and exits with 1 if fewer than nine of ten entities are right.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from bench.measure import Result, print_progress
from rem.app import Rem
from rem.db.embedded.server import EmbeddedServer
from rem.db.store import Store
from rem.models import Ontology, Resource, Role
from rem.sessions.message import NewMessage
from rem.settings import Settings

SETS = ("tuned", "held_out")
_FOLDER = Path(__file__).parent.parent / "tests" / "dreams" / "labelled"


@dataclass(slots=True)
class Score:
    """The result for one set of conversations."""

    cases: int = 0
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    """Entities that the conversation does not name, or that were found twice."""
    missed: list[str] = field(default_factory=list)
    aliases: int = 0
    aliases_missed: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """Return the share of found entities that are right."""
        return self.right / max(1, self.right + len(self.wrong))

    @property
    def recall(self) -> float:
        """Return the share of labelled entities that were set_score."""
        return self.right / max(1, self.right + len(self.missed))

    @property
    def alias_recall(self) -> float:
        """Return the share of aliases that LOOKUP finds."""
        return self.aliases / max(1, self.aliases + len(self.aliases_missed))


def load_cases(name: str) -> list[dict[str, Any]]:
    """Return the cases of a set."""
    cases: list[dict[str, Any]] = yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return cases


async def score(rem: Rem, cases: list[dict[str, Any]]) -> Score:
    """Store each case as the memory of a new user, run the dream, and compare the entities."""
    total = Score()
    for number, case in enumerate(cases):
        user = f"labelled-{uuid4().hex}-{number}"
        await _store_case(rem, user, case)
        store = rem.for_user(user).store
        await rem.dreamer().dream(store.scope, ["entities"])
        await _compare(store, case, total)
    return total


async def _store_case(rem: Rem, user: str, case: dict[str, Any]) -> None:
    memory = rem.for_user(user).sessions
    for session in case.get("sessions", []):
        await memory.append(uuid4(), [_build_message(line) for line in session], create_session=True)
    for number, text in enumerate(case.get("notes", [])):
        await rem.for_user(user).store.upsert(Resource(name=f"note {number}", content=text))


def _build_message(line: str | dict[str, str]) -> NewMessage:
    if isinstance(line, str):
        return NewMessage(role=Role.USER, content=line)
    if "assistant" in line:
        return NewMessage(role=Role.ASSISTANT, content=line["assistant"])
    return NewMessage(role=Role.USER, content=line["text"], metadata={"speaker": line["speaker"]})


async def _compare(store: Store, case: dict[str, Any], total: Score) -> None:
    total.cases += 1
    rows = {row.id: row for row in await store.find(Ontology, limit=1000)}
    left = set(rows)
    keys = {row.key for row in rows.values()}
    # Exact keys first: of two Lauras, the other one is left for the alias.
    for key, (entity_type, *aliases) in sorted(case["entities"].items(), key=lambda item: item[0] not in keys):
        matches = {row.id for row in await store.lookup(key, table="ontologies")}
        fitting = [row_id for row_id in matches & left if _has_type(rows[row_id], entity_type)]
        fitting.sort(key=lambda row_id: rows[row_id].key != key)
        if not fitting:
            total.missed.append(f"{case['name']}: {key}")
            continue
        total.right += 1
        left.discard(fitting[0])
        for alias in aliases:
            if fitting[0] in {row.id for row in await store.lookup(alias, table="ontologies")}:
                total.aliases += 1
            else:
                total.aliases_missed.append(f"{case['name']}: {alias}")
    total.wrong += [f"{case['name']}: {rows[row_id].key}" for row_id in sorted(left)]


def _has_type(row: Ontology, entity_type: str) -> bool:
    return bool(row.extracted_data.get("entity_type") == entity_type)


async def run(settings: Settings) -> Result:
    """Measure the set that the rules were tuned on, and the held-out set."""
    result = Result("entities")
    async with Rem.open(settings) as rem:
        for name in SETS:
            set_score = await score(rem, load_cases(name))
            result.figures[name] = {
                "cases": set_score.cases,
                "precision": round(set_score.precision, 3),
                "recall": round(set_score.recall, 3),
                "alias_recall": round(set_score.alias_recall, 3),
                "wrong": set_score.wrong,
                "missed": set_score.missed,
            }
            print_progress(f"entities, {name}: precision {set_score.precision:.3f}, recall {set_score.recall:.3f}")
            result.check(f"wrong among the entities found, {name}, share", 1 - set_score.precision, 0.1)
    return result


def main() -> None:
    """Print the figures of both sets as JSON."""
    with tempfile.TemporaryDirectory(prefix="rem-bench-") as folder:
        home = Path(folder) / "home"
        try:
            result = asyncio.run(run(Settings(rem_home=home)))
        finally:
            EmbeddedServer(home).stop()
    json.dump(result.figures, sys.stdout, indent=2, ensure_ascii=False)
    print()
    sys.exit(0 if all(check.passed for check in result.checks) else 1)


if __name__ == "__main__":
    main()
