"""A job: work that is done later, by whoever is free, for one owner or for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

import orjson

JobState: TypeAlias = Literal["queued", "running", "dead"]
STATUS_BY_STATE: dict[JobState, str] = {"queued": "queued", "running": "picked", "dead": "failed"}
_STATES: dict[str, JobState] = {stored: state for state, stored in STATUS_BY_STATE.items()}


@dataclass(frozen=True, slots=True)
class JobFailure:
    """Why an attempt at a job failed, for people: no traceback of libraries, no secrets."""

    kind: str
    """The error's class."""
    message: str
    where: list[str] = field(default_factory=list)
    """The last places in the code, the innermost last."""
    at: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job that waits, runs or is dead. What is done is gone."""

    id: int
    kind: str
    state: JobState
    tenant_id: str | None
    user_id: str | None
    payload: Mapping[str, Any]
    priority: int
    attempts: int
    """How often it failed, or was left behind by a worker that vanished."""
    created_at: datetime
    changed_at: datetime
    due_at: datetime
    """Not before then is it begun."""
    error: JobFailure | None
    """What the last attempt met."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Job:
        """The job that a row of the queue is."""
        headers = orjson.loads(row["headers"]) if row["headers"] else {}
        error = headers.get("error")
        return cls(
            id=row["id"],
            kind=row["entrypoint"],
            state=_STATES.get(row["status"], "queued"),
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
    """How many jobs of a kind there are, by state, and how many came to their end in the last day."""

    kind: str
    queued: int = 0
    running: int = 0
    dead: int = 0
    done_lately: int = 0
    failed_lately: int = 0
    canceled_lately: int = 0
    oldest_queued_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """When something is done regularly."""

    kind: str
    schedule: str
    next_at: datetime
    last_at: datetime | None
