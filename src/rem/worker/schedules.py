"""What is done regularly: at these times a job is put into the queue, once on the whole database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rem.errors import SettingsError
from rem.settings import Settings, is_cron


@dataclass(frozen=True, slots=True)
class Schedule:
    """A kind of job, and when it is due, as a cron expression in UTC."""

    kind: str
    cron: str


def schedules_of(settings: Settings) -> Sequence[Schedule]:
    """What the settings ask for."""
    found = [Schedule("sweep", "17 * * * *"), Schedule("prune", "47 * * * *")]
    if settings.dreaming.schedule is not None:
        found.append(Schedule("dream-all", settings.dreaming.schedule))
    return found


def check(schedules: Sequence[Schedule]) -> None:
    """Refuse what is no cron expression."""
    for schedule in schedules:
        if not is_cron(schedule.cron):
            raise SettingsError(
                f"The schedule of {schedule.kind}, {schedule.cron!r}, is no cron expression: write five fields, as in "
                "'0 3 * * *' for three at night."
            )
