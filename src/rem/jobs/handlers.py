"""The handlers of all kinds of jobs.

A handler can be interrupted anywhere and run again, and must tolerate that. It is a function of a module, because a job
may run in a process of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from rem.context import Scope, parse_uuid
from rem.errors import InvalidInputError
from rem.jobs.queue import JobQueue

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.ingest.ingester import Ingester
    from rem.settings import Settings

Payload: TypeAlias = Mapping[str, Any]
MAX_IN_PROCESS_BYTES = 200_000
"""A larger file is processed in a process of its own."""
LOG_RETENTION = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """The objects that a handler uses."""

    rem: Rem
    settings: Settings
    jobs: JobQueue
    has_own_process: bool = False
    """Whether the job has the process for itself."""


Handler: TypeAlias = Callable[[HandlerContext, Payload], Awaitable[None]]


def parse_owner(payload: Payload) -> Scope:
    """Return the owner in the payload. Raise an InvalidInputError if it has none."""
    tenant_id, user_id = payload.get("tenant_id"), payload.get("user_id")
    if not isinstance(tenant_id, str) or not isinstance(user_id, str | None):
        raise InvalidInputError("The job has no owner: its payload needs tenant_id, and user_id or null.")
    return Scope(tenant_id, user_id)


async def ingest(context: HandlerContext, payload: Payload) -> None:
    """Read and store a file of the ingest queue. A large one is processed in a process of its own."""
    from rem.ingest.queue import get_upload_size, process_queued_file
    from rem.jobs.job_process import run_in_own_process

    def ingester_for(scope: Scope) -> Ingester:
        return context.rem.for_user(scope).ingester(save_agent=partial(_save_agent, context, scope))

    scope, file_id = parse_owner(payload), parse_uuid(str(payload.get("file_id")))
    if file_id is None:
        raise InvalidInputError("The job names no file: its payload needs file_id.")
    size = await get_upload_size(context.rem.database, scope.tenant_id, file_id)
    if not context.has_own_process and (size is None or size > MAX_IN_PROCESS_BYTES):
        await run_in_own_process(context.settings, ingest, payload)
    else:
        seconds = context.settings.ingest.process_seconds
        await process_queued_file(context.rem.database, ingester_for, seconds, scope.tenant_id, file_id)


async def _save_agent(context: HandlerContext, scope: Scope, text: str) -> str:
    return (await context.rem.agents.catalog.save(text, scope)).name


async def prune(context: HandlerContext, _payload: Payload) -> None:
    """Delete old sessions of everyone and old log rows, and fail files that have no job."""
    from rem.ingest.queue import fail_stranded_files

    await context.rem.prune_if_due()
    await fail_stranded_files(context.rem.database)
    await context.jobs.trim(LOG_RETENTION)


async def sweep(context: HandlerContext, _payload: Payload) -> None:
    """Erase the expired rows of everyone."""
    await context.rem.sweep()


async def dream(context: HandlerContext, payload: Payload) -> None:
    """Run the dreams of one owner, unless another worker is running them."""
    await context.rem.dreamer().dream(parse_owner(payload), payload.get("dreams"), wait=False)


async def dream_all(context: HandlerContext, _payload: Payload) -> None:
    """Enqueue a `dream` job for every owner."""
    for tenant_id, user_id in await context.rem.dreamer().list_owners():
        owner = {"tenant_id": tenant_id, "user_id": user_id}
        await context.jobs.enqueue("dream", owner, dedupe="all", priority=-1, is_limited=False)


HANDLERS: dict[str, Handler] = {
    "dream": dream,
    "dream-all": dream_all,
    "ingest": ingest,
    "prune": prune,
    "sweep": sweep,
}
"""Handlers by kind. Jobs of an unknown kind stay in the queue for a worker that knows it."""
