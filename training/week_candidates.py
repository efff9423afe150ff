"""Store weeks of everyday use in a temporary REM, and export the rows among which it looks for each answer.

    python -m training.week_candidates OUT.jsonl WEEK.yaml …

One line for each question: its text, and the candidates with text, date and search score, and whether they have the
answer or an outdated one. training/train_reranker.py learns to rank them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from datetime import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from rem.app import Rem
from rem.db.store import Store
from rem.evals.temporary_server import prepare_schema, temporary_server
from rem.evals.week.data import Week, WeekQuestion, WeekSession, read_week
from rem.evals.week.run import WeekRun
from rem.memory.message import NewMessage
from rem.models import Role
from rem.query.answer_rows import arrange_answer, drop_copies, get_text
from rem.query.continuations import add_continued, get_continued
from rem.query.natural import find_rows
from rem.query.superseded import load_cosines
from rem.query.syntax_tree import Search
from rem.settings import Settings, get_settings

LIMIT = 8
"""Rows of an answer in chat."""


class CandidateRun(WeekRun):
    """Lives through a week without asking, and collects the candidates of all questions at its end."""

    async def collect(self) -> list[dict[str, Any]]:
        """Return the questions with their candidates."""
        for day in range(1, self._week.last_day + 1):
            await self._ingest_notes(day)
            for session in self._week.list_sessions(day):
                session_id = await self._say_all(session)
                await self._move_session(session_id, day, time.fromisoformat(session.at))
        await self._rem.index(user=self._scope)
        known = self._week.list_known_questions(self._week.last_day)
        return [await self._find_candidates(question) for question in known]

    async def _say_all(self, session: WeekSession) -> str:
        memory = self._rem.memory(self._scope)
        session_id = str(uuid4())
        await memory.create_session(session_id=UUID(session_id))
        for message in session.messages:
            await memory.append(UUID(session_id), [NewMessage(role=Role.USER, content=message.text)])
        return session_id

    async def _find_candidates(self, question: WeekQuestion) -> dict[str, Any]:
        store = self._rem.store(self._scope)
        executor = self._rem._executor(self._scope)
        result, names = await find_rows(executor, store, question.ask, Search(question.ask, limit=LIMIT))
        rows = await add_continued(store, drop_copies(result.results))
        arranged = await arrange_answer(store, question.ask, result, names)
        return {
            "week": self._week.name,
            "group": question.group,
            "ask": question.ask,
            "names": {role: sorted(found) for role, found in names.items()},
            "rows": [_describe(question, row) for row in rows],
            "cosines": await _load_pair_cosines(store, rows),
            "arranged": [str(row["record"]["id"]) for row in arranged.results],
        }


async def _load_pair_cosines(store: Store, rows: list[dict[str, Any]]) -> list[tuple[str, str, float]]:
    """Return the cosine of each two rows."""
    found = await load_cosines(store, rows)
    return [(*sorted(pair), cosine) for pair, cosine in found.items() if len(pair) == 2]


def _describe(question: WeekQuestion, row: dict[str, Any]) -> dict[str, Any]:
    text, before = get_text(row), get_continued(row)
    return {
        "row": row,
        "text": text,
        "before": before,
        "answers": question.is_answered_by(text) and not question.is_outdated_in(text),
        "is_outdated": question.is_outdated_in(text),
    }


async def export(settings: Settings, weeks: list[Week]) -> list[dict[str, Any]]:
    """Return the candidates of all questions of some weeks, each in a tenant of its own."""
    await prepare_schema(settings)
    found: list[dict[str, Any]] = []
    async with Rem.open(settings) as rem:
        for week in weeks:
            run = CandidateRun(
                rem, settings, week, tenant=f"train-{week.name}-{uuid4().hex[:6]}", on_stage=lambda *_: None
            )
            collected = await run.collect()
            has_answer = [any(row["answers"] for row in item["rows"]) for item in collected]
            print(f"{week.name}: {len(collected)} questions, {sum(has_answer)} with their answer among the candidates")
            found += collected
    return found


def main() -> None:
    """Read the weeks, and write the candidates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("weeks", type=Path, nargs="+")
    options = parser.parse_args()
    weeks = [read_week(path) for path in options.weeks]
    with temporary_server(get_settings(), print) as settings:
        found = asyncio.run(export(settings, weeks))
    with options.out.open("w", encoding="utf-8") as file:
        for item in found:
            file.write(json.dumps(item, default=str) + "\n")


if __name__ == "__main__":
    main()
