"""Ingest runs: lists the runs of an owner, and undoes one by erasing the files that it added."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from rem.db.retry import retry_when_busy
from rem.db.sql import query
from rem.errors import ConflictError, InvalidInputError, NotFoundError
from rem.ingest.file_store import FileStore
from rem.ingest.models import shorten_run_id

if TYPE_CHECKING:
    from rem.db.database import Connection
    from rem.db.store import Store

_RUN_ID = re.compile(r"[0-9a-f]{4,32}")


@dataclass(frozen=True, slots=True)
class IngestRun:
    """A run that stored files. The numbers are of the files that still exist."""

    id: str
    started_at: datetime
    is_undone: bool
    added: int
    changed: int
    names: list[str]
    """The names of its first files."""


@dataclass(slots=True)
class UndoReport:
    """The result of undoing a run: the names of its files, by what happened to them."""

    run: str
    erased: list[str] = field(default_factory=list)
    """Files that the run added."""
    kept_changed: list[str] = field(default_factory=list)
    """Files that the run added, and that were changed since. They stay."""
    kept_updated: list[str] = field(default_factory=list)
    """Files that existed before the run. They keep the text that the run stored, because the older one is not kept."""
    kept_deleted: list[str] = field(default_factory=list)
    """Files that the run added, and that were deleted since. They stay deleted."""
    kept_agents: list[str] = field(default_factory=list)
    """Files that the run saved as agents. The files are erased, and the agents stay."""


async def list_runs(store: Store, limit: int = 20) -> list[IngestRun]:
    """Return the ingest runs of an owner, latest first."""
    async with store.executor.connection() as connection:
        rows = await connection.fetch(query("ingest/ingest", "runs"), store.scope.tenant_id, store.scope.user_id, limit)
    return [
        IngestRun(shorten_run_id(run_id), started_at, undone_at is not None, added, changed, names)
        for run_id, started_at, undone_at, added, changed, names in rows
    ]


async def undo_run(store: Store, run: str) -> UndoReport:
    """Erase the files that a run added and nobody has changed since. Return what was erased and what stays.

    Raise NotFoundError if the owner has no such run, and ConflictError if it is undone already.
    """

    async def undo() -> UndoReport:
        async with store.transaction() as inside, inside.executor.connection() as connection:
            file_store = FileStore(connection, store.scope)
            await file_store.lock()
            run_id = await _find_run(store, connection, run)
            report = UndoReport(shorten_run_id(run_id))
            rows = await connection.fetch(query("ingest/ingest", "files_of_run"), store.scope.tenant_id, run_id)
            await file_store.erase("files", [row["id"] for row in rows if _sort_into(report, **dict(row))])
            await connection.execute(query("ingest/ingest", "mark_undone"), store.scope.tenant_id, run_id)
            return report

    return await retry_when_busy(undo)


def _sort_into(
    report: UndoReport, *, name: str, is_new: bool, is_deleted: bool, is_same: bool, form: str | None, **_: object
) -> bool:
    """Add a file to the list that it belongs to. Return whether it is to be erased."""
    if not is_new:
        report.kept_updated.append(name)
    elif is_deleted:
        report.kept_deleted.append(name)
    elif not is_same:
        report.kept_changed.append(name)
    else:
        (report.kept_agents if form == "schema" else report.erased).append(name)
        return True
    return False


async def _find_run(store: Store, connection: Connection, run: str) -> UUID:
    text = run.strip().lower().replace("-", "")
    if not _RUN_ID.fullmatch(text):
        raise InvalidInputError(f"{run!r} is not the id of a run: `rem ingest runs` lists them.")
    rows = await connection.fetch(query("ingest/ingest", "find_runs"), store.scope.tenant_id, store.scope.user_id, text)
    if not rows:
        raise NotFoundError(f"There is no ingest run {run} of this owner: `rem ingest runs` lists them.")
    if len(rows) > 1:
        raise InvalidInputError(f"Several runs start with {run}: give more of the id.")
    run_id, undone_at = rows[0]
    if undone_at is not None:
        raise ConflictError(f"The ingest run {run} is undone already.")
    return UUID(str(run_id))
