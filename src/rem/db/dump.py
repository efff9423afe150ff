"""`rem db dump`: the store as YAML that `rem db load` turns into the same memory."""

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
_ROWS_PER_BLOCK = 1_000
_GIVEN_BY_STORE = {"tenant_id", "user_id", "key"}


@contextmanager
def open_for_replacement(path: Path) -> Iterator[TextIO]:
    """A file that takes its place only when it is complete; a pipe or a device is written to as it is."""
    try:
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8") as stream:
                yield stream
            return
        with _put_in_place(path.resolve()) as stream:
            yield stream
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}.") from error


@contextmanager
def _put_in_place(target: Path) -> Iterator[TextIO]:
    part = target.with_name(f".rem-dump-{uuid4().hex}")
    try:
        with part.open("x", encoding="utf-8") as stream:
            if target.exists():
                copymode(target, part)
            yield stream
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


async def dump(
    store: Store, stream: TextIO, *, with_deleted: bool = False, on_rows: Callable[[int], None] | None = None
) -> int:
    """Write the scope's own rows; how many there were."""
    rows = 0
    # Written here and not inside the snapshot, where a full disk would look like a failure of the database.
    async with aclosing(_all_pages(store, with_deleted)) as pages:
        async for model, page in pages:
            stream.write(_block(model, page))
            rows += len(page)
            if on_rows:
                on_rows(rows)
    if not rows:
        stream.write("[]\n")
    return rows


async def _all_pages(store: Store, with_deleted: bool) -> AsyncGenerator[tuple[type[Entity], list[Entity]], None]:
    """The scope's own rows as they are at one moment."""
    async with store.snapshot() as frozen:
        for model in frozen.types.models.values():
            for deleted in (False, True) if with_deleted else (False,):
                async for page in _pages(frozen, model, deleted):
                    yield model, page


async def _pages(store: Store, model: type[Entity], deleted: bool) -> AsyncIterator[list[Entity]]:
    statement = fill(query("lookup", "own_page"), table=f"rem.{identifier(model.entity_type.table)}")
    last: tuple[Any, UUID] = (MIN_DATETIME, UUID(int=0))
    while True:
        async with store.executor.connection() as connection:
            rows = await connection.fetch(
                statement, store.scope.tenant_id, store.scope.user_id, deleted, *last, _ROWS_PER_BLOCK
            )
        if not rows:
            return
        page = [model.from_row(record) for (record,) in rows]
        last = (page[-1].created_at, page[-1].id)
        yield page


def _block(model: type[Entity], page: list[Entity]) -> str:
    block = {
        "table": model.entity_type.table,
        "key_field": "id",
        "rows": [_row(entity) for entity in page],
    }
    text: str = yaml.dump([block], Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def _row(entity: Entity) -> dict[str, Any]:
    """The fields that differ from their defaults; the rest comes back by itself."""
    row = entity.model_dump(mode="json", exclude_defaults=True, exclude=_GIVEN_BY_STORE)
    return {"id": str(entity.id)} | row
