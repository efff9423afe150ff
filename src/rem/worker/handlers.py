"""The handlers of all kinds of jobs. A handler can be interrupted anywhere and run again, and must tolerate that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from rem.context import Scope, parse_uuid
from rem.errors import InvalidInputError
from rem.jobs.queue import JobQueue

if TYPE_CHECKING:
    from rem.agents.service import Agents
    from rem.app import Rem
    from rem.ingest.ingester import Ingester
    from rem.settings import Settings

Payload: TypeAlias = Mapping[str, Any]
OWNER_DELAY_SECONDS = 2.0
LOG_RETENTION = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """The objects that a handler uses."""

    rem: Rem
    settings: Settings
    jobs: JobQueue
    agents: Agents | None = None
    large_files: Counter[Scope] = field(default_factory=Counter)
    """The number of large files that are being processed, by owner."""


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
    from rem.worker.file_process import MAX_IN_PROCESS_BYTES, process_in_own_process

    def ingester_for(scope: Scope) -> Ingester:
        return context.rem.ingester(scope, save_agent=partial(_save_agent, context.agents, scope))

    scope, file_id = parse_owner(payload), parse_uuid(str(payload.get("file_id")))
    if file_id is None:
        raise InvalidInputError("The job names no file: its payload needs file_id.")
    size = await get_upload_size(context.rem.database, scope.tenant_id, file_id)
    if size is None or size > MAX_IN_PROCESS_BYTES:
        with _take_turn(context, scope):
            await process_in_own_process(context.settings, scope.tenant_id, file_id)
    else:
        await process_queued_file(context.rem.database, context.settings, ingester_for, scope.tenant_id, file_id)


@contextmanager
def _take_turn(context: HandlerContext, scope: Scope) -> Iterator[None]:
    """Count a large file of an owner. Raise RequeueError if no job of this worker would be left for other owners.

    A large file takes minutes: without this, two files of one user would stop the files of all others.
    """
    from rem.worker.queries import RequeueError

    if context.large_files[scope] >= max(1, context.settings.worker.concurrency - 1):
        raise RequeueError(delay=timedelta(seconds=OWNER_DELAY_SECONDS), reason="waits for another file of its owner")
    context.large_files[scope] += 1
    try:
        yield
    finally:
        context.large_files[scope] -= 1
        # Otherwise the counter would grow with each new user.
        if not context.large_files[scope]:
            del context.large_files[scope]


async def _save_agent(agents: Agents | None, scope: Scope, text: str) -> str:
    if agents is None:
        raise InvalidInputError("This worker cannot save agents.")
    return (await agents.catalog.save(text, scope)).name


async def prune(context: HandlerContext, _payload: Payload) -> None:
    """Delete old sessions of everyone and old log rows, and fail files that have no job."""
    from rem.ingest.queue import fail_stranded_files

    await context.rem.prune_if_due()
    await fail_stranded_files(context.rem.database)
    await context.jobs.trim_log(LOG_RETENTION)


async def sweep(context: HandlerContext, _payload: Payload) -> None:
    """Erase the expired rows of everyone."""
    await context.rem.sweep()


async def dream(context: HandlerContext, payload: Payload) -> None:
    """Run the dreams of one owner, unless another worker is running them."""
    agents = context.agents
    dreamer = (
        context.rem.dreamer(agents.extraction_model, agents.output_schemas)
        if agents is not None
        else context.rem.dreamer()
    )
    await dreamer.dream(parse_owner(payload), payload.get("dreams"), wait=False)


async def dream_all(context: HandlerContext, _payload: Payload) -> None:
    """Enqueue a `dream` job for every owner."""
    for tenant_id, user_id in await context.rem.dreamer().list_owners():
        await context.jobs.enqueue("dream", {"tenant_id": tenant_id, "user_id": user_id}, dedupe="all", priority=-1)


HANDLERS: dict[str, Handler] = {
    "dream": dream,
    "dream-all": dream_all,
    "ingest": ingest,
    "prune": prune,
    "sweep": sweep,
}
"""Handlers by kind. Jobs of an unknown kind stay in the queue for a worker that knows it."""
