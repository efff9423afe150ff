"""JobQueue: add, list, retry and cancel jobs. Workers (`rem.worker`) use pgqueuer; this module does not import it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson

from rem.db.sql import query
from rem.errors import InvalidInputError, NotFoundError
from rem.jobs.job import STATE_BY_STATUS, STATUS_BY_STATE, Job, JobCounts, JobDelays, JobState, ScheduleStatus

if TYPE_CHECKING:
    from rem.db.database import Connection, Executor

_KIND = re.compile(r"[a-z][a-z0-9_.-]{0,99}\Z")
MAX_KEY_BYTES = 500
MAX_PAYLOAD_BYTES = 1_000_000
RECENT = timedelta(days=1)
"""The period that `stats` counts ended jobs for."""
_COUNT_BY_LOG_STATUS = {"successful": "done_lately", "failed": "failed_lately", "canceled": "canceled_lately"}


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
    ) -> int | None:
        """Add a job, and return its id; None if an equal job is queued already.

        `tenant_id` and `user_id` in the payload name the owner. Jobs are equal if their kind, owner and `dedupe` are
        equal. If an equal job is running, the new one starts after it, because the running one may have missed the
        latest change. With a connection the job is added in its transaction. Jobs with a higher priority run first.
        """
        _check_arguments(kind, priority)
        owner = {name: payload[name] for name in ("tenant_id", "user_id") if payload.get(name) is not None}
        content = _encode_payload(payload)
        async with self._connect(connection) as used:
            key = None if dedupe is None else _make_key(kind, owner, dedupe)
            arguments = (priority, kind, content, delay or timedelta())
            while True:
                job_id = await _insert(used, *arguments, key, owner)
                if job_id is not None or key is None:
                    return job_id
                equal = await used.fetchrow(query("jobs", "equal_job"), key)
                # None: it ended after the first statement, so nothing would run for this caller.
                if equal is not None and equal["is_running"]:
                    after = equal["id"]
                    return await _insert(used, *arguments, f"{key} after {after}", owner | {"after": after})
                if equal is not None:
                    return None

    async def list(self, *, state: JobState | None = None, kind: str | None = None, limit: int = 100) -> Sequence[Job]:
        """Return jobs, the newest first."""
        stored = None if state is None else STATUS_BY_STATE[state]
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs", "list"), stored, kind, limit)
        return [Job.from_row(dict(row)) for row in rows]

    async def list_for_owner(self, tenant_id: str, user_id: str | None, *, limit: int = 100) -> Sequence[Job]:
        """Return the jobs of an owner, the newest first."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs", "list_by_owner"), tenant_id, user_id, limit)
        return [Job.from_row(dict(row)) for row in rows]

    async def get(self, job_id: int) -> Job:
        """Return one job. Raise a NotFoundError if it has succeeded, was cancelled or never existed."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("jobs", "get"), _stored_id(job_id))
        if row is None:
            raise NotFoundError(f"There is no job {job_id}: it has succeeded or was cancelled. See `rem jobs list`.")
        return Job.from_row(dict(row))

    async def retry(self, ids: Sequence[int] | None = None) -> Sequence[int]:
        """Queue dead jobs again with all their attempts, and return their ids. None means all dead jobs."""
        stored_ids = None if ids is None else [_stored_id(job_id) for job_id in ids]
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs", "retry"), stored_ids)
        return [row["id"] for row in rows]

    async def cancel(self, ids: Sequence[int]) -> Sequence[int]:
        """Remove jobs, stop those that are running, and return the ids of the removed ones."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs", "cancel"), [_stored_id(job_id) for job_id in ids])
        return [row["id"] for row in rows]

    async def counts(self) -> Mapping[JobState, int]:
        """Return the number of jobs by state."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs", "counts"))
        counts: dict[JobState, int] = {"queued": 0, "running": 0, "dead": 0}
        for _, status, number, _ in rows:
            counts[STATE_BY_STATUS[status]] += number
        return counts

    async def delays(self, max_silence: timedelta) -> JobDelays:
        """Return how long jobs wait, and how many running ones had no heartbeat for longer than `max_silence`."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("jobs", "delays"), max_silence)
        assert row is not None  # noqa: S101  # one row, always
        return JobDelays(row["oldest_due_seconds"], row["silent_jobs"])

    async def stats(self) -> Sequence[JobCounts]:
        """Return the number of jobs of each kind, including those that ended in the last 24 hours."""
        async with self._database.connection() as connection:
            current = await connection.fetch(query("jobs", "counts"))
            ended = await connection.fetch(query("jobs", "ended"), RECENT)
        counts: dict[str, JobCounts] = {}
        for kind, status, number, oldest in current:
            before = counts.get(kind, JobCounts(kind))
            changes: dict[str, Any] = {STATE_BY_STATUS[status]: number}
            if status == "queued":
                changes["oldest_queued_at"] = oldest
            counts[kind] = replace(before, **changes)
        for kind, status, number in ended:
            counts[kind] = replace(counts.get(kind, JobCounts(kind)), **{_COUNT_BY_LOG_STATUS[status]: number})
        return [counts[kind] for kind in sorted(counts)]

    async def schedules(self) -> Sequence[ScheduleStatus]:
        """Return the last and next run of each scheduled kind."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs", "schedules"))
        return [ScheduleStatus(*row) for row in rows]

    async def erase_owner(self, tenant_id: str, user_id: str | None, *, connection: Connection | None = None) -> int:
        """Erase all jobs of an owner and their log rows, stop the running ones, and return their number.

        The log of jobs that have succeeded contains no owner, only ids, kinds and times.
        """
        async with self._connect(connection) as used, used.transaction():
            ids = [row["id"] for row in await used.fetch(query("jobs", "find_by_owner"), tenant_id, user_id)]
            await used.fetch(query("jobs", "cancel"), ids)
            await used.execute(query("jobs", "erase_log"), ids)
        return len(ids)

    async def count_for_owner(self, tenant_id: str, user_id: str | None) -> int:
        """Return the number of jobs of an owner."""
        async with self._database.connection() as connection:
            return len(await connection.fetch(query("jobs", "find_by_owner"), tenant_id, user_id))

    async def trim_log(self, older_than: timedelta) -> None:
        """Delete log rows that are older than this."""
        async with self._database.connection() as connection:
            await connection.execute(query("jobs", "trim_log"), older_than)

    @asynccontextmanager
    async def _connect(self, connection: Connection | None) -> AsyncIterator[Connection]:
        if connection is not None:
            yield connection
            return
        async with self._database.connection() as own:
            yield own


async def _insert(
    connection: Connection,
    priority: int,
    kind: str,
    payload: bytes,
    delay: timedelta,
    key: str | None,
    headers: Mapping[str, Any],
) -> int | None:
    job_id: int | None = await connection.fetchval(
        query("jobs", "enqueue"), priority, kind, payload, delay, key, orjson.dumps(headers).decode()
    )
    return job_id


def _check_arguments(kind: str, priority: int) -> None:
    if not _KIND.match(kind):
        raise InvalidInputError(f"{kind!r} is not a valid kind of job: use lower-case letters, digits and hyphens.")
    if not -1_000_000 <= priority <= 1_000_000:
        raise InvalidInputError("The priority of a job must be between -1000000 and 1000000.")


def _encode_payload(payload: Mapping[str, Any]) -> bytes:
    try:
        content = orjson.dumps(dict(payload))
    except TypeError as error:
        raise InvalidInputError(f"The payload of a job must be JSON: {error}.") from error
    if len(content) > MAX_PAYLOAD_BYTES:
        raise InvalidInputError("The payload of a job has at most 1 MB: store large data and pass its key or id.")
    return content


def _make_key(kind: str, owner: Mapping[str, Any], dedupe: str) -> str:
    """Return the key that equal jobs share, without NUL and short enough for an index."""
    key = orjson.dumps([kind, owner.get("tenant_id"), owner.get("user_id"), dedupe]).decode()
    return key if len(key.encode()) <= MAX_KEY_BYTES else hashlib.sha256(key.encode()).hexdigest()


def _stored_id(job_id: int) -> int:
    """Return the id, or 0, which no job has, if it is out of range for PostgreSQL."""
    return job_id if 0 < job_id < 2**63 else 0
