"""JobQueue: add, list, retry and cancel jobs. A job is a unit of work for one owner or for everyone; workers run it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

import orjson

from rem.db.sql import query
from rem.errors import InvalidInputError, NotFoundError, QueueFullError

if TYPE_CHECKING:
    from rem.db.database import Connection, Executor

JobState: TypeAlias = Literal["queued", "running", "dead"]
_KIND = re.compile(r"[a-z][a-z0-9_.-]{0,99}\Z")
CHANNEL = "rem_jobs"
"""Tells workers that there are jobs, or the id of a running job that was cancelled."""
MAX_KEY_BYTES = 500
MAX_PAYLOAD_BYTES = 1_000_000
RECENT = timedelta(days=1)
"""The period that `stats` counts ended jobs for."""
_COUNT_BY_OUTCOME = {"done": "done_lately", "dead": "failed_lately", "cancelled": "canceled_lately"}


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
    """Number of attempts that failed or ended with the loss of their process."""
    losses: int
    """How many processes ended or froze while they ran it."""
    created_at: datetime
    changed_at: datetime
    due_at: datetime
    """The earliest start."""
    error: JobFailure | None
    """The reason why the last attempt failed."""
    worker: UUID | None
    """The worker that runs it."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Job:
        """Build a job from a row of the queue."""
        values = {field.name: row[field.name] for field in fields(cls)}
        error = orjson.loads(row["error"]) if row["error"] else None
        return cls(**{**values, "payload": orjson.loads(row["payload"]), "error": error and JobFailure(**error)})


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


class JobQueue:
    """The queued, running and dead jobs of a database."""

    def __init__(self, database: Executor) -> None:
        self._database = database

    async def enqueue(
        self,
        kind: str,
        payload: Mapping[str, Any],
        *,
        dedupe: str | None = None,
        priority: int = 0,
        delay: timedelta | None = None,
        connection: Connection | None = None,
        is_limited: bool = True,
    ) -> int | None:
        """Add a job, and return its id; None if an equal job waits already.

        `tenant_id` and `user_id` in the payload name the owner. Jobs are equal if their kind, owner and `dedupe` are
        equal. If an equal job is running, the new one starts after it, because the running one may have missed the
        latest change. With a connection the job is added in its transaction. Jobs with a higher priority run first.
        Raise a QueueFullError if WORKER__MAX_WAITING jobs of the owner wait, unless `is_limited` is False.
        """
        _check_arguments(kind, priority)
        tenant_id, user_id = payload.get("tenant_id"), payload.get("user_id")
        content = _encode_payload(payload)
        key = None if dedupe is None else make_key(kind, tenant_id, user_id, dedupe)
        limit = self._database.max_waiting_jobs if is_limited and tenant_id is not None else None
        async with self._connect(connection) as used:
            row = await used.fetchrow(
                query("jobs/jobs", "enqueue"),
                *(kind, _as_owner(tenant_id), _as_owner(user_id), content, priority, key, delay or timedelta(), limit),
            )
        if row is None:
            raise QueueFullError(f"{limit:,} of your jobs wait already (WORKER__MAX_WAITING): try again soon.")
        return row["id"] if row["is_new"] else None

    async def list(self, *, state: JobState | None = None, kind: str | None = None, limit: int = 100) -> Sequence[Job]:
        """Return jobs, the newest first."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs/jobs", "list"), state, kind, limit)
        return [Job.from_row(dict(row)) for row in rows]

    async def list_for_owner(self, tenant_id: str, user_id: str | None, *, limit: int = 100) -> Sequence[Job]:
        """Return the jobs of an owner, the newest first."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs/jobs", "list_by_owner"), tenant_id, user_id, limit)
        return [Job.from_row(dict(row)) for row in rows]

    async def get(self, job_id: int) -> Job:
        """Return one job. Raise a NotFoundError if it has succeeded, was cancelled or never existed."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("jobs/jobs", "get"), _stored_id(job_id))
        if row is None:
            raise NotFoundError(f"There is no job {job_id}: it has succeeded or was cancelled. See `rem jobs list`.")
        return Job.from_row(dict(row))

    async def retry(self, ids: Sequence[int] | None = None) -> Sequence[int]:
        """Queue dead jobs again with all their attempts, and return their ids. None means all dead jobs."""
        stored_ids = None if ids is None else [_stored_id(job_id) for job_id in ids]
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs/jobs", "retry"), stored_ids)
        return sorted(row["id"] for row in rows)

    async def cancel(self, ids: Sequence[int]) -> Sequence[int]:
        """Remove jobs, stop those that are running, and return the ids of the removed ones."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs/jobs", "cancel"), [_stored_id(job_id) for job_id in ids])
        return [row["id"] for row in rows]

    async def counts(self) -> Mapping[JobState, int]:
        """Return the number of jobs by state."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs/jobs", "counts"))
        counts: dict[JobState, int] = {"queued": 0, "running": 0, "dead": 0}
        for _, state, number, _ in rows:
            counts[state] += number
        return counts

    async def delays(self, max_silence: timedelta) -> JobDelays:
        """Return how long jobs wait, and how many running ones had no heartbeat for longer than `max_silence`."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("jobs/jobs", "delays"), max_silence)
        assert row is not None  # noqa: S101  # one row, always
        return JobDelays(row["oldest_due_seconds"], row["silent_jobs"])

    async def stats(self) -> Sequence[JobCounts]:
        """Return the number of jobs of each kind, including those that ended in the last 24 hours."""
        async with self._database.connection() as connection:
            current = await connection.fetch(query("jobs/jobs", "counts"))
            ended = await connection.fetch(query("jobs/jobs", "ended"), RECENT)
        counts: dict[str, JobCounts] = {}
        for kind, state, number, oldest in current:
            before = counts.get(kind, JobCounts(kind))
            changes: dict[str, Any] = {state: number}
            if state == "queued":
                changes["oldest_queued_at"] = oldest
            counts[kind] = replace(before, **changes)
        for kind, outcome, number in ended:
            counts[kind] = replace(counts.get(kind, JobCounts(kind)), **{_COUNT_BY_OUTCOME[outcome]: number})
        return [counts[kind] for kind in sorted(counts)]

    async def schedules(self) -> Sequence[ScheduleStatus]:
        """Return the last and next run of each scheduled kind."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs/jobs", "schedules"))
        return [ScheduleStatus(*row) for row in rows]

    async def erase_owner(self, tenant_id: str, user_id: str | None, *, connection: Connection | None = None) -> int:
        """Erase all jobs of an owner and their log rows, stop the running ones, and return their number.

        The log of jobs that have succeeded contains no owner, only ids, kinds and times.
        """
        async with self._connect(connection) as used, used.transaction():
            ids = [row["id"] for row in await used.fetch(query("jobs/jobs", "find_by_owner"), tenant_id, user_id)]
            await used.fetch(query("jobs/jobs", "cancel"), ids)
            await used.execute(query("jobs/jobs", "erase_traces"), tenant_id, user_id, ids)
        return len(ids)

    async def trim(self, older_than: timedelta) -> None:
        """Delete log rows that are older than this, and past turns."""
        async with self._database.connection() as connection:
            await connection.execute(query("jobs/jobs", "trim"), older_than)

    @asynccontextmanager
    async def _connect(self, connection: Connection | None) -> AsyncIterator[Connection]:
        if connection is not None:
            yield connection
            return
        async with self._database.connection() as own:
            yield own


def _check_arguments(kind: str, priority: int) -> None:
    if not _KIND.match(kind):
        raise InvalidInputError(f"{kind!r} is not a valid kind of job: use lower-case letters, digits and hyphens.")
    if not -1_000_000 <= priority <= 1_000_000:
        raise InvalidInputError("The priority of a job must be between -1000000 and 1000000.")


def _encode_payload(payload: Mapping[str, Any]) -> str:
    try:
        content = orjson.dumps(dict(payload))
    except TypeError as error:
        raise InvalidInputError(f"The payload of a job must be JSON: {error}.") from error
    if len(content) > MAX_PAYLOAD_BYTES:
        raise InvalidInputError("The payload of a job has at most 1 MB: store large data and pass its key or id.")
    return content.decode()


def _as_owner(value: object) -> str | None:
    """Return a part of the owner. Anything but text is left to the handler, which refuses it."""
    return value if isinstance(value, str) else None


def make_key(kind: str, tenant_id: object, user_id: object, dedupe: str) -> str:
    """Return the key that equal jobs share, without NUL and short enough for an index."""
    key = orjson.dumps([kind, tenant_id, user_id, dedupe]).decode()
    return key if len(key.encode()) <= MAX_KEY_BYTES else hashlib.sha256(key.encode()).hexdigest()


def _stored_id(job_id: int) -> int:
    """Return the id, or 0, which no job has, if it is out of range for PostgreSQL."""
    return job_id if 0 < job_id < 2**63 else 0
