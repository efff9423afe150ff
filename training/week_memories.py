"""Convert weeks of everyday use to memories with questions, for training/ranking_data.py.

    python -m training.week_memories OUT.jsonl WEEK.yaml …

A message or a note answers a question if it has the answer and no outdated one before it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bench.quality.week.data import Week, read_week


def to_memory(week: Week) -> dict[str, Any]:
    """Return the messages, notes and questions of a week."""
    sessions = [
        [{"id": f"{session.id}-{place}", "text": message.text} for place, message in enumerate(session.messages)]
        for session in week.sessions
    ]
    notes = [{"id": note.file, "text": note.text} for note in week.notes]
    texts = [*(message for messages in sessions for message in messages), *notes]
    questions = [
        {
            "question": question.ask,
            "gold": [
                text["id"]
                for text in texts
                if question.is_answered_by(text["text"]) and not question.is_outdated_in(text["text"])
            ],
        }
        for question in week.questions
    ]
    return {"sessions": sessions, "notes": notes, "questions": [q for q in questions if q["gold"]]}


def main() -> None:
    """Read the weeks, and write one line for each."""
    out, *paths = map(Path, sys.argv[1:])
    memories = [to_memory(read_week(path)) for path in paths]
    out.write_text("".join(json.dumps(memory) + "\n" for memory in memories), encoding="utf-8")
    print(f"{len(memories)} weeks, {sum(len(memory['questions']) for memory in memories)} questions")


if __name__ == "__main__":
    main()
