"""Count the messages and questions of weeks that REM takes for another kind than they have.

python -m training.measure_message_kinds WEEK.yaml …
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from bench.quality.week.data import read_week

from rem.message_kinds import classify_message
from rem.models.message import MessageKind


def main() -> None:
    """Print the wrong ones, and their number among all of each kind."""
    wrong: Counter[MessageKind] = Counter()
    total: Counter[MessageKind] = Counter()
    for week in map(read_week, map(Path, sys.argv[1:])):
        messages = [(message.text, message.kind) for session in week.sessions for message in session.messages]
        for text, kind in [*messages, *((question.ask, MessageKind.QUESTION) for question in week.questions)]:
            found = classify_message(text)
            total[kind] += 1
            wrong[kind] += found is not kind
            if found is not kind:
                print(f"{week.name}: {kind} as {found}: {text}")
    for kind, count in total.items():
        print(f"{kind}: {wrong[kind]} of {count} wrong")


if __name__ == "__main__":
    main()
