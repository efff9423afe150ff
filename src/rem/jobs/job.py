"""Job: a unit of work in the queue, for one owner or for everyone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

import orjson

JobState: TypeAlias = Literal["queued", "running", "dead"]
STATUS_BY_STATE: dict[JobState, str] = {"queued": "queued", "running": "picked", "dead": "failed"}
STATE_BY_STATUS: dict[str, JobState] = {stored: state for state, stored in STATUS_BY_STATE.items()}


@dataclass(frozen=True, slots=True)
class JobFailure:
    """The reason why an attempt failed, without traceback and secrets."""

    kind: str
    """The class of the error."""
    message: str
    where: list[str] = field(default_factory=list)
    """The last lines of code, the innermost last."""
    at: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A queued, running or dead job. Jobs that have succeeded are removed."""

    id: int
    kind: str
    state: JobState
    tenant_id: str | None
    user_id: str | None
    payload: Mapping[str, Any]
    priority: int
    attempts: int
    """Number of attempts that failed or ended with the loss of their worker."""
    created_at: datetime
    changed_at: datetime
    due_at: datetime
    """The earliest start."""
    error: JobFailure | None
    """The reason why the last attempt failed."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Job:
        """Build a job from a row of the queue."""
        headers = orjson.loads(row["headers"]) if row["headers"] else {}
        error = headers.get("error")
        return cls(
            id=row["id"],
            kind=row["entrypoint"],
            state=STATE_BY_STATUS.get(row["status"], "queued"),
            tenant_id=headers.get("tenant_id"),
            user_id=headers.get("user_id"),
            payload=orjson.loads(row["payload"] or b"{}"),
            priority=row["priority"],
            attempts=row["attempts"],
            created_at=row["created"],
            changed_at=row["updated"],
            due_at=row["execute_after"],
            error=JobFailure(**error) if error else None,
        )


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Number of jobs of one kind by state, and of those that ended in the last 24 hours."""

    kind: str
    queued: int = 0
    running: int = 0
    dead: int = 0
    done_lately: int = 0
    failed_lately: int = 0
    canceled_lately: int = 0
    oldest_queued_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobDelays:
    """Signs that no worker takes jobs, or that one is gone."""

    oldest_due_seconds: float
    """The wait of the oldest job that could run; 0 if none waits."""
    silent_jobs: int
    """The number of running jobs without a recent heartbeat."""


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """The last and the next run of a scheduled kind of job."""

    kind: str
    schedule: str
    next_at: datetime
    last_at: datetime | None
