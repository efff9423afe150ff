"""`rem db dump`: write the rows of a scope as YAML that `rem db load` can read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from shutil import copymode
from typing import Any, TextIO
from uuid import UUID, uuid4

import yaml

from rem.db.sql import fill, identifier, query
from rem.db.store import Store
from rem.errors import InvalidInputError
from rem.models import Entity
from rem.models.field_types import MIN_DATETIME

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
ROWS_PER_BLOCK = 1_000
"""Rows that are held in memory at a time."""
_SET_BY_STORE = {"tenant_id", "user_id", "key"}


@contextmanager
def open_for_replacement(path: Path) -> Iterator[TextIO]:
    """Open a file for writing that replaces `path` when the block ends without an error.

    A pipe or a device is written directly. Raise InvalidInputError if the file cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8") as stream:
                yield stream
            return
        with _open_temporary(path.resolve()) as stream:
            yield stream
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}.") from error


@contextmanager
def _open_temporary(target: Path) -> Iterator[TextIO]:
    temporary = target.with_name(f".rem-dump-{uuid4().hex}")
    try:
        with temporary.open("x", encoding="utf-8") as stream:
            if target.exists():
                copymode(target, temporary)
            yield stream
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


async def dump(
    store: Store, stream: TextIO, *, with_deleted: bool = False, on_rows: Callable[[int], None] | None = None
) -> int:
    """Write the own rows of a scope to `stream`, and return their number."""
    rows = 0
    # Written outside the snapshot: inside it, a full disk would look like an error of the database.
    async with aclosing(_iter_all_pages(store, with_deleted)) as pages:
        async for model, page in pages:
            stream.write(_format_block(model, page))
            rows += len(page)
            if on_rows:
                on_rows(rows)
    if not rows:
        stream.write("[]\n")
    return rows


async def _iter_all_pages(store: Store, with_deleted: bool) -> AsyncGenerator[tuple[type[Entity], list[Entity]], None]:
    """Yield the own rows of the scope, all from the same moment."""
    async with store.snapshot() as snapshot:
        for model in snapshot.types.models.values():
            for deleted in (False, True) if with_deleted else (False,):
                async for page in _iter_pages(snapshot, model, deleted):
                    yield model, page


async def _iter_pages(store: Store, model: type[Entity], deleted: bool) -> AsyncIterator[list[Entity]]:
    statement = fill(query("db/lookup", "own_page"), table=f"rem.{identifier(model.entity_type.table)}")
    last: tuple[Any, UUID] = (MIN_DATETIME, UUID(int=0))
    while True:
        async with store.executor.connection() as connection:
            rows = await connection.fetch(
                statement, store.scope.tenant_id, store.scope.user_id, deleted, *last, ROWS_PER_BLOCK
            )
        if not rows:
            return
        page = [model.from_row(record) for (record,) in rows]
        last = (page[-1].created_at, page[-1].id)
        yield page


def _format_block(model: type[Entity], page: list[Entity]) -> str:
    block = {
        "table": model.entity_type.table,
        "key_field": "id",
        "rows": [_to_row(entity) for entity in page],
    }
    text: str = yaml.dump([block], Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def _to_row(entity: Entity) -> dict[str, Any]:
    """Return the id and the fields that differ from their defaults."""
    row = entity.model_dump(mode="json", exclude_defaults=True, exclude=_SET_BY_STORE)
    return {"id": str(entity.id)} | row
