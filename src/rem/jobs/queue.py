"""The queue of jobs. pgqueuer works it off (`rem.worker`); putting something into it needs none of pgqueuer."""

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
from rem.jobs.job import STATUS_BY_STATE, Job, JobCounts, JobState, ScheduleStatus

if TYPE_CHECKING:
    from rem.db.database import Connection, Executor

_KIND = re.compile(r"[a-z][a-z0-9_.-]{0,99}\Z")
_LONGEST_KEY = 500
_LARGEST_PAYLOAD = 1_000_000
_LATELY = timedelta(days=1)
_ENDED = {"successful": "done_lately", "failed": "failed_lately", "canceled": "canceled_lately"}
_WAITING = {stored: state for state, stored in STATUS_BY_STATE.items()}


class JobQueue:
    """The jobs of a database: those that wait, run or are dead."""

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
        """Put a job into the queue; its id, or None if an equal one waits already.

        `tenant_id` and `user_id` of the payload say whose job it is. Jobs are equal if kind, owner and `dedupe` are;
        one that runs has perhaps looked already, so another one then waits for its end. With a connection the job is
        part of that connection's transaction. The higher the priority, the sooner.
        """
        _check(kind, priority)
        owner = {name: payload[name] for name in ("tenant_id", "user_id") if payload.get(name) is not None}
        content = _encoded(payload)
        async with self._lent(connection) as lent:
            key = None if dedupe is None else _key(kind, owner, dedupe)
            arguments = (priority, kind, content, delay or timedelta())
            job_id = await _insert(lent, *arguments, key, owner)
            if job_id is None and key is not None:
                running = await lent.fetchval(query("jobs", "running_with_key"), key)
                if running is not None:
                    job_id = await _insert(lent, *arguments, f"{key} after {running}", owner | {"after": running})
        return job_id

    async def list(self, *, state: JobState | None = None, kind: str | None = None, limit: int = 100) -> Sequence[Job]:
        """The jobs that are not done, the newest first."""
        stored = None if state is None else STATUS_BY_STATE[state]
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs", "list"), stored, kind, limit)
        return [Job.from_row(dict(row)) for row in rows]

    async def get(self, job_id: int) -> Job:
        """One job that is not done."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("jobs", "get"), _stored_id(job_id))
        if row is None:
            raise NotFoundError(f"There is no job {job_id}: it is done, or it was cancelled. See `rem jobs list`.")
        return Job.from_row(dict(row))

    async def retry(self, ids: Sequence[int] | None = None) -> Sequence[int]:
        """Let dead jobs wait again, with all their attempts; which. None means all of them."""
        known = None if ids is None else [_stored_id(job_id) for job_id in ids]
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs", "retry"), known)
        return [row["id"] for row in rows]

    async def cancel(self, ids: Sequence[int]) -> Sequence[int]:
        """Take jobs out of the queue, and stop those that run; which."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs", "cancel"), [_stored_id(job_id) for job_id in ids])
        return [row["id"] for row in rows]

    async def counts(self) -> Mapping[JobState, int]:
        """How many jobs there are in each state."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs", "counts"))
        found: dict[JobState, int] = {"queued": 0, "running": 0, "dead": 0}
        for _, status, number, _ in rows:
            found[_WAITING[status]] += number
        return found

    async def stats(self) -> Sequence[JobCounts]:
        """How many jobs of each kind there are, and how many came to their end in the last day."""
        async with self._database.connection() as connection:
            waiting = await connection.fetch(query("jobs", "counts"))
            ended = await connection.fetch(query("jobs", "ended"), _LATELY)
        found: dict[str, JobCounts] = {}
        for kind, status, number, oldest in waiting:
            count = found.get(kind, JobCounts(kind))
            changes: dict[str, Any] = {_WAITING[status]: number}
            if status == "queued":
                changes["oldest_queued_at"] = oldest
            found[kind] = replace(count, **changes)
        for kind, status, number in ended:
            found[kind] = replace(found.get(kind, JobCounts(kind)), **{_ENDED[status]: number})
        return [found[kind] for kind in sorted(found)]

    async def schedules(self) -> Sequence[ScheduleStatus]:
        """What the workers do regularly, and when next."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("jobs", "schedules"))
        return [ScheduleStatus(*row) for row in rows]

    async def erase_owner(self, tenant_id: str, user_id: str | None, *, connection: Connection | None = None) -> int:
        """Remove every job of an owner, whatever its state, and its traces; how many. What runs is stopped.

        Of jobs that are done nothing of their owner is kept: the log has their number, kind and times.
        """
        async with self._lent(connection) as lent, lent.transaction():
            found = [row["id"] for row in await lent.fetch(query("jobs", "find_by_owner"), tenant_id, user_id)]
            await lent.fetch(query("jobs", "cancel"), found)
            await lent.execute(query("jobs", "erase_log"), found)
        return len(found)

    async def count_for_owner(self, tenant_id: str, user_id: str | None) -> int:
        """How many jobs of an owner there are; 0 is the proof that nothing is left."""
        async with self._database.connection() as connection:
            return len(await connection.fetch(query("jobs", "find_by_owner"), tenant_id, user_id))

    async def trim_log(self, older_than: timedelta) -> None:
        """Forget what happened before that."""
        async with self._database.connection() as connection:
            await connection.execute(query("jobs", "trim_log"), older_than)

    @asynccontextmanager
    async def _lent(self, connection: Connection | None) -> AsyncIterator[Connection]:
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


def _check(kind: str, priority: int) -> None:
    if not _KIND.match(kind):
        raise InvalidInputError(f"{kind!r} is no kind of job: use lower-case letters, digits and hyphens.")
    if not -1_000_000 <= priority <= 1_000_000:
        raise InvalidInputError("A job's priority is between -1000000 and 1000000.")


def _encoded(payload: Mapping[str, Any]) -> bytes:
    try:
        content = orjson.dumps(dict(payload))
    except TypeError as error:
        raise InvalidInputError(f"A job's payload must be JSON: {error}.") from error
    if len(content) > _LARGEST_PAYLOAD:
        raise InvalidInputError("A job's payload has at most 1 MB: store what is large, and give its key or id.")
    return content


def _key(kind: str, owner: Mapping[str, Any], dedupe: str) -> str:
    """What equal jobs have in common; as a text without NUL that fits into an index."""
    key = orjson.dumps([kind, owner.get("tenant_id"), owner.get("user_id"), dedupe]).decode()
    return key if len(key.encode()) <= _LONGEST_KEY else hashlib.sha256(key.encode()).hexdigest()


def _stored_id(job_id: int) -> int:
    """The id, or one that no job has: PostgreSQL has no larger numbers."""
    return job_id if 0 < job_id < 2**63 else 0
