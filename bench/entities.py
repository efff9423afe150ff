"""How well the dream of entities finds what labelled conversations name, without a language model.

`python -m bench.entities`: JSON on standard output, exit 1 if fewer than nine of ten are right.
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

from bench.measure import Result, say
from rem.app import Rem
from rem.db.embedded.server import EmbeddedServer
from rem.db.store import Store
from rem.memory.message import NewMessage
from rem.models import Ontology, Resource, Role
from rem.settings import Settings

SETS = ("tuned", "held_out")
_FOLDER = Path(__file__).parent.parent / "tests" / "dreaming" / "labelled"


@dataclass(slots=True)
class Score:
    """What was found of a set."""

    cases: int = 0
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    """What was found and is not named, or is found twice."""
    missed: list[str] = field(default_factory=list)
    aliases: int = 0
    aliases_missed: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """Of what was found, how much is right."""
        return self.right / max(1, self.right + len(self.wrong))

    @property
    def recall(self) -> float:
        """Of what is named, how much was found."""
        return self.right / max(1, self.right + len(self.missed))

    @property
    def alias_recall(self) -> float:
        """Of the other names, how many LOOKUP finds."""
        return self.aliases / max(1, self.aliases + len(self.aliases_missed))


def labelled(name: str) -> list[dict[str, Any]]:
    """The cases of a set."""
    cases: list[dict[str, Any]] = yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return cases


async def score(rem: Rem, cases: list[dict[str, Any]]) -> Score:
    """Let each case be the memory of somebody of its own, dream, and compare what is found by then."""
    total = Score()
    for number, case in enumerate(cases):
        user = f"labelled-{uuid4().hex}-{number}"
        await _remember(rem, user, case)
        store = rem.store(user)
        await rem.dreamer().dream(store.scope, ["entities"])
        await _compare(store, case, total)
    return total


async def _remember(rem: Rem, user: str, case: dict[str, Any]) -> None:
    memory = rem.memory(user)
    for session in case.get("sessions", []):
        await memory.append(uuid4(), [_message(said) for said in session], creates=True)
    for number, text in enumerate(case.get("notes", [])):
        await rem.store(user).upsert(Resource(name=f"note {number}", content=text))


def _message(said: str | dict[str, str]) -> NewMessage:
    if isinstance(said, str):
        return NewMessage(role=Role.USER, content=said)
    if "assistant" in said:
        return NewMessage(role=Role.ASSISTANT, content=said["assistant"])
    return NewMessage(role=Role.USER, content=said["text"], metadata={"speaker": said["speaker"]})


async def _compare(store: Store, case: dict[str, Any], total: Score) -> None:
    total.cases += 1
    rows = {row.id: row for row in await store.find(Ontology, limit=1000)}
    left = set(rows)
    keys = {row.key for row in rows.values()}
    # Those that are a key first: of two Lauras, the other one is the one that is left.
    for key, (kind, *aliases) in sorted(case["entities"].items(), key=lambda one: one[0] not in keys):
        answers = {row.id for row in await store.lookup(key, table="ontologies")}
        fitting = sorted((one for one in answers & left if _is(rows[one], kind)), key=lambda one: rows[one].key != key)
        if not fitting:
            total.missed.append(f"{case['name']}: {key}")
            continue
        total.right += 1
        left.discard(fitting[0])
        for alias in aliases:
            found = {row.id for row in await store.lookup(alias, table="ontologies")}
            if fitting[0] in found:
                total.aliases += 1
            else:
                total.aliases_missed.append(f"{case['name']}: {alias}")
    total.wrong += [f"{case['name']}: {rows[one].key}" for one in sorted(left)]


def _is(row: Ontology, kind: str) -> bool:
    return bool(row.extracted_data.get("entity_type") == kind)


async def run(settings: Settings) -> Result:
    """Precision and recall on what the rules were made with, and on what they were not."""
    result = Result("entities")
    async with Rem.open(settings) as rem:
        for name in SETS:
            found = await score(rem, labelled(name))
            result.figures[name] = {
                "cases": found.cases,
                "precision": round(found.precision, 3),
                "recall": round(found.recall, 3),
                "alias_recall": round(found.alias_recall, 3),
                "wrong": found.wrong,
                "missed": found.missed,
            }
            say(f"entities, {name}: precision {found.precision:.3f}, recall {found.recall:.3f}")
            result.check(f"wrong among the entities found, {name}, share", 1 - found.precision, 0.1)
    return result


def main() -> None:
    """Print the figures of both sets."""
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
