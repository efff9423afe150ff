"""What is done for each kind of job. A handler may run again after it was cut off at any point, and must bear that."""

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
    from rem.agents.service import Agents
    from rem.app import Rem
    from rem.ingest.ingester import Ingester
    from rem.settings import Settings

Payload: TypeAlias = Mapping[str, Any]
LOG_RETENTION = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """What a handler works with."""

    rem: Rem
    settings: Settings
    jobs: JobQueue
    agents: Agents | None = None


Handler: TypeAlias = Callable[[HandlerContext, Payload], Awaitable[None]]


def parse_owner(payload: Payload) -> Scope:
    """Whose job it is; a job without a tenant is none of an owner's."""
    tenant_id, user_id = payload.get("tenant_id"), payload.get("user_id")
    if not isinstance(tenant_id, str) or not isinstance(user_id, str | None):
        raise InvalidInputError("The job does not say whose it is: its payload needs tenant_id, and user_id or null.")
    return Scope(tenant_id, user_id)


async def ingest(work: HandlerContext, payload: Payload) -> None:
    """Read a file that was handed over, and remember what it says."""
    from rem.ingest.queue import process_queued_file

    def ingester_of(scope: Scope) -> Ingester:
        return work.rem.ingester(scope, save_agent=partial(_save_schema, work.agents, scope))

    scope, file_id = parse_owner(payload), parse_uuid(str(payload.get("file_id")))
    if file_id is None:
        raise InvalidInputError("The job does not say which file is to be read: its payload needs file_id.")
    await process_queued_file(work.rem.database, work.settings, ingester_of, scope.tenant_id, file_id)


async def _save_schema(agents: Agents | None, scope: Scope, text: str) -> str:
    if agents is None:
        raise InvalidInputError("This worker keeps no agents.")
    return (await agents.catalog.save(text, scope)).name


async def prune(work: HandlerContext, _payload: Payload) -> None:
    """Delete what the settings say is too old, of everyone; and the log of jobs that nobody needs any more."""
    from rem.ingest.queue import fail_stranded_files

    await work.rem.prune_if_due()
    # What waits for a job that is gone would wait for ever.
    await fail_stranded_files(work.rem.database)
    await work.jobs.trim_log(LOG_RETENTION)


async def sweep(work: HandlerContext, _payload: Payload) -> None:
    """Erase what has lapsed, of everyone."""
    await work.rem.sweep()


async def dream(work: HandlerContext, payload: Payload) -> None:
    """Dream for one owner; if somebody does already, that is enough."""
    agents = work.agents
    dreamer = (
        work.rem.dreamer(agents.extraction_model, agents.output_schemas) if agents is not None else work.rem.dreamer()
    )
    await dreamer.dream(parse_owner(payload), payload.get("dreams"), wait=False)


async def dream_all(work: HandlerContext, _payload: Payload) -> None:
    """Let everyone's dream wait, each as a job of its own."""
    for tenant_id, user_id in await work.rem.dreamer().list_owners():
        await work.jobs.enqueue("dream", {"tenant_id": tenant_id, "user_id": user_id}, dedupe="all", priority=-1)


HANDLERS: dict[str, Handler] = {
    "dream": dream,
    "dream-all": dream_all,
    "ingest": ingest,
    "prune": prune,
    "sweep": sweep,
}
"""By kind. A kind that a worker does not know stays in the queue for one that does."""
