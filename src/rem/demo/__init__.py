"""The sample workspace that `rem demo` loads into its own tenant, and removes again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from rem.db.load import LoadReport, RowProgress, load
from rem.db.sql import query
from rem.db.store import Store
from rem.db.yaml_rows import TableBlock, read_blocks
from rem.models import Entity

DEMO_TENANT = "demo"
"""The tenant of the sample workspace. Its rows are shared in a tenant, so in any other one they would be in answers."""
_IDENTIFYING_FIELDS = ("name", "summary", "content", "description", "uri")
"""Text fields that must be as in the sample workspace. Anything else can change without an edit, such as edges."""


@dataclass(slots=True)
class RemovedWorkspace:
    """The result of a removal from one tenant."""

    tenant: str
    erased: list[str] = field(default_factory=list)
    """The erased rows, as table/key."""
    kept: list[str] = field(default_factory=list)
    """Rows with the key of a sample row and another text. Somebody wrote or edited them, so they stay."""
    chats: int = 0
    """The erased sessions of the demo tenant, of all users."""


def read_workspace() -> list[TableBlock]:
    """Return the rows of the sample workspace, by table."""
    text = (files("rem.demo") / "workspace.yaml").read_text(encoding="utf-8")
    return read_blocks(text, "workspace.yaml")


async def load_workspace(store: Store, on_rows: RowProgress | None = None) -> LoadReport:
    """Load the sample workspace into the rows of a store. Loading it again changes nothing."""
    return await load(store, read_workspace(), on_rows)


async def remove_workspace(store: Store) -> RemovedWorkspace:
    """Erase the rows of the sample workspace from the store's scope, also deleted ones; all of them or none.

    The chats in its own tenant are about it, so they go with it. Chats in any other tenant stay.
    """
    report = RemovedWorkspace(store.scope.tenant_id)
    async with store.transaction() as transaction:
        for row, is_sample in await _find_rows(transaction):
            name = f"{row.entity_type.table}/{row.key}"
            if is_sample:
                await transaction.erase(row)
            (report.erased if is_sample else report.kept).append(name)
        if store.scope.tenant_id == DEMO_TENANT:
            async with transaction.executor.connection() as connection:
                report.chats = len(await connection.fetch(query("sessions/sessions", "erase_sessions"), DEMO_TENANT))
    return report


async def count_sample_rows(store: Store) -> int:
    """Count the rows of the sample workspace in the store's scope."""
    return sum(is_sample for row, is_sample in await _find_rows(store) if row.deleted_at is None)


async def _find_rows(store: Store) -> list[tuple[Entity, bool]]:
    """Return the scope's own rows with a key of the workspace, each with whether it still is the sample row."""
    found: list[tuple[Entity, bool]] = []
    for block in read_workspace():
        model = store.types.get_model(block.table)
        samples = {await store.normalize_key(str(row.values["name"])): row.values for row in block.rows}
        rows = await store.find(model, {"key": list(samples)}, limit=1000, with_deleted=True)
        own = [row for row in rows if row.user_id == store.scope.user_id and row.key is not None]
        found += [(row, _is_sample(row, samples[row.key])) for row in own if row.key in samples]
    return found


def _is_sample(row: Entity, sample: Mapping[str, Any]) -> bool:
    return all(
        getattr(row, name, None) == value
        for name, value in sample.items()
        if name in _IDENTIFYING_FIELDS and isinstance(value, str)
    )
