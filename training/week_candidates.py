"""Store weeks of everyday use in a temporary REM, and export what SEARCH finds for each of their questions.

    python -m training.week_candidates OUT.jsonl WEEK.yaml …

One line for each question, also for those of training/weeks/more: its text, its answers, and the rows with their search
scores. The reader learns to choose among them (training/reader_data.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
from datetime import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from bench.quality.temporary_server import prepare_schema, temporary_server
from bench.quality.week.data import WeekQuestion, WeekSession, read_week
from bench.quality.week.run import WeekRun

from rem.app import Rem
from rem.models import Role
from rem.query.tree import Search
from rem.sessions.message import NewMessage
from rem.settings import Settings, get_settings
from training.week_questions import MoreQuestion, read_week_questions

LIMIT = 24
MIN_SIMILARITY = 0.2


class CandidateRun(WeekRun):
    """Lives through a week without asking, and collects the candidates of all questions at its end."""

    async def collect(self, more: list[MoreQuestion]) -> list[dict[str, Any]]:
        """Return the questions with their candidates."""
        said: dict[str, WeekSession] = {}
        for day in range(1, self._week.last_day + 1):
            await self._ingest_notes(day)
            for session in self._week.list_sessions(day):
                session_id = await self._store(session)
                said[session_id] = session
                await self._move_session(session_id, day, time.fromisoformat(session.at))
        await self._rem.for_user(self._scope).index()
        known = self._week.list_known_questions(self._week.last_day)
        questions: list[WeekQuestion | MoreQuestion] = [*known, *more]
        return [await self._find_candidates(question, said) for question in questions]

    async def _store(self, session: WeekSession) -> str:
        memory = self._rem.for_user(self._scope).sessions
        session_id = uuid4()
        await memory.create_session(session_id=session_id)
        for message in session.messages:
            await memory.append(UUID(str(session_id)), [NewMessage(role=Role.USER, content=message.text)])
        return str(session_id)

    async def _find_candidates(
        self, question: WeekQuestion | MoreQuestion, said: dict[str, WeekSession]
    ) -> dict[str, Any]:
        ask = question.ask if isinstance(question, WeekQuestion) else question.whole
        query = Search(ask, limit=LIMIT, min_similarity=MIN_SIMILARITY)
        result = await self._rem.for_user(self._scope).query(query)
        described = (_describe(question, row, said) for row in result.list_rows())
        return {
            "week": self._week.name,
            "group": question.group,
            "ask": ask,
            "answer": question.answer,
            "outdated": question.outdated if isinstance(question, WeekQuestion) else [],
            "rows": [row for row in described if row["text"]],
        }


def _describe(
    question: WeekQuestion | MoreQuestion, row: dict[str, Any], said: dict[str, WeekSession]
) -> dict[str, Any]:
    record, text = row["record"], ((row.get("passage") or {}).get("text") or "").strip()
    session, place = said.get(str(record.get("session_id"))), record.get("message_index")
    is_outdated = isinstance(question, WeekQuestion) and question.is_outdated_in(text)
    source = session.id if session else str(record.get("name")).split("/", 1)[-1].split("#")[0]
    return {
        "text": text,
        "title": (record.get("metadata") or {}).get("title"),
        "before": session.messages[place - 1].text if session and place else None,
        "is_note": row["table"] != "messages",
        "time": None if row["table"] != "messages" and not record.get("timestamp") else row.get("happened_at"),
        "place": place or 0,
        "score": row["score"],
        "similarity": row.get("similarity"),
        "is_source": source == question.source,
        "answers": question.is_answered_by(text) and not is_outdated,
        "is_outdated": is_outdated,
    }


async def export(settings: Settings, weeks: list[Path], out: Path) -> None:
    """Write the candidates of all questions of some weeks, each in a tenant of its own."""
    await prepare_schema(settings)
    async with Rem.open(settings) as rem:
        with out.open("w", encoding="utf-8") as file:
            for path in weeks:
                week = read_week(path)
                more = path.parent / "more" / path.name
                tenant = f"train-{week.name}-{uuid4().hex[:6]}"
                run = CandidateRun(rem, week, tenant=tenant, on_stage=lambda *_: None)
                collected = await run.collect(read_week_questions(more) if more.exists() else [])
                file.writelines(json.dumps(item, default=str) + "\n" for item in collected)
                found = sum(any(row["answers"] for row in item["rows"]) for item in collected)
                print(f"{week.name}: {len(collected)} questions, {found} with their answer among the candidates")


def main() -> None:
    """Read the weeks, and write the candidates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("weeks", type=Path, nargs="+")
    options = parser.parse_args()
    with temporary_server(get_settings(), print) as settings:
        asyncio.run(export(settings, options.weeks, options.out))


if __name__ == "__main__":
    main()
