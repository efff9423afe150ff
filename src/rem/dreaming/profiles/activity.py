"""Activity: how much a user said, week by week.

What counts is the user's own messages, up to the last one: somebody who is away keeps the figures of when they were
here, and `last_active_at` says when that was. So nothing changes while nothing happens.

| level | messages a week, on average over the last four weeks with the last message in them |
| --- | --- |
| high | 50 or more |
| moderate | 10 to 49 |
| low | fewer |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from rem.dreaming.claim import Ref, Source

_WEEKS_SHOWN = 8
_WEEKS_OF_LEVEL = 4
WITNESSES = 5
"""So many of what speaks for something are told as its sources, the latest: they are reason enough to say it, and a
profile that told of all of them would be written anew with hundreds of sources each night."""
_LEVELS = ((50, "high"), (10, "moderate"), (0, "low"))


@dataclass(frozen=True, slots=True)
class Activity:
    """What somebody did lately."""

    weeks: dict[date, int]
    """Messages of each week, which begins on Monday; the newest first."""
    level: str
    last_at: datetime
    sessions: tuple[Source, ...]
    """The conversations it was in, the newest first."""

    @property
    def last_session(self) -> Source:
        """Where the last message is."""
        return self.sessions[0]

    @property
    def witnesses(self) -> tuple[Source, ...]:
        """The latest of them: so many speak for the rest."""
        return self.sessions[:WITNESSES]

    def as_json(self) -> dict[str, int]:
        """The latest weeks that had any, by their Mondays."""
        return {week.isoformat(): count for week, count in list(self.weeks.items())[:_WEEKS_SHOWN]}


def activity_of(rows: Sequence[Any]) -> Activity | None:
    """The activity that the rows of `said_by_week` tell of; None without any."""
    if not rows:
        return None
    weeks: Counter[date] = Counter()
    for row in rows:
        weeks[row["week"]] += row["messages"]
    newest = max(weeks)
    latest = sum(count for week, count in weeks.items() if week > newest - timedelta(weeks=_WEEKS_OF_LEVEL))
    level = next(name for least, name in _LEVELS if latest / _WEEKS_OF_LEVEL >= least)
    sessions = {row["id"]: Source(Ref("sessions", row["id"]), row["key"]) for row in rows}
    return Activity(
        dict(sorted(weeks.items(), reverse=True)), level, max(row["last_at"] for row in rows), tuple(sessions.values())
    )
