"""`rem lookup`: what answers to some keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption, print_to_stderr, run_with_rem

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.db.store import Store
    from rem.models import Entity


def lookup(
    keys: Annotated[list[str], typer.Argument(help='Readable keys, such as sarah-chen or "Sarah Chen".')],
    table: Annotated[str | None, typer.Option(help="Only in this table.")] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show what answers to some keys, the user's own rows before the shared ones."""
    from rem.cli.output import print_json
    from rem.errors import NotFoundError

    require_nonempty_keys(keys)

    async def work(rem: Rem) -> dict[str, list[Entity]]:
        return await lookup_keys(rem.store(user, tenant=tenant), keys, table)

    answered = run_with_rem(work)
    found = _once_each(answered)
    if as_json:
        print_json([{"table": entity.entity_type.table, **entity.model_dump(mode="json")} for entity in found])
    else:
        _print_entities(found, with_ownership=user is not None)
    missing = f"Nothing answers to {', '.join(key for key in answered if not answered[key])}."
    if not found:
        raise NotFoundError(missing)
    if not all(answered.values()):
        print_to_stderr(missing)


def require_nonempty_keys(keys: list[str]) -> None:
    """An error if one of the keys is empty, as a forgotten variable of a script makes it."""
    from rem.errors import InvalidInputError

    if not all(key.strip() for key in keys):
        raise InvalidInputError("A key is empty: give a name such as sarah-chen.")


async def lookup_keys(store: Store, keys: list[str], table: str | None) -> dict[str, list[Entity]]:
    """What answers to each of some keys."""
    return {key: await store.lookup(key, table=table) for key in keys}


def _once_each(answered: dict[str, list[Entity]]) -> list[Entity]:
    """The entities in the order of the keys; one that answers to two of them comes once."""
    found: dict[tuple[str, UUID], Entity] = {}
    for entity in (entity for entities in answered.values() for entity in entities):
        found.setdefault((entity.entity_type.table, entity.id), entity)
    return list(found.values())


def _print_entities(entities: list[Entity], with_ownership: bool) -> None:
    from rem.cli.entity_text import format_entity

    for entity in entities:
        ownership = "shared" if entity.user_id is None else "yours"
        typer.echo(format_entity(entity, ownership=ownership if with_ownership else ""))
        typer.echo()
