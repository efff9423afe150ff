"""`rem db dump`: the store as YAML that `rem db load` turns into the same memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO
from uuid import UUID

import yaml

from rem.db.sql import fill, identifier, query
from rem.db.store import Store
from rem.errors import InvalidInputError
from rem.models import Entity
from rem.models.values import EPOCH

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_ROWS_PER_BLOCK = 1_000
_GIVEN_BY_STORE = {"tenant_id", "user_id", "key"}


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A file that takes its place only when it is complete."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as stream:
            yield stream
        part.replace(path)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        part.unlink(missing_ok=True)


async def dump(
    store: Store, stream: TextIO, *, with_deleted: bool = False, on_rows: Callable[[int], None] | None = None
) -> int:
    """Write the scope's own rows; how many there were."""
    rows = 0
    async with store.snapshot() as frozen:
        for model in frozen.types.models.values():
            for deleted in (False, True) if with_deleted else (False,):
                async for page in _pages(frozen, model, deleted):
                    stream.write(_block(model, page))
                    rows += len(page)
                    if on_rows:
                        on_rows(rows)
    if not rows:
        stream.write("[]\n")
    return rows


async def _pages(store: Store, model: type[Entity], deleted: bool) -> AsyncIterator[list[Entity]]:
    statement = fill(query("lookup", "own_page"), table=f"rem.{identifier(model.entity_type.table)}")
    last: tuple[Any, UUID] = (EPOCH, UUID(int=0))
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
