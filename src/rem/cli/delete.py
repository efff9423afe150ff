"""`rem delete` and `rem restore`: rows that go, and rows that come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption, confirm, run_with_rem

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.db.store import Store
    from rem.models import Entity


def delete(
    keys: Annotated[list[str], typer.Argument(help="The keys of what is to go, such as sarah-chen.")],
    table: Annotated[str | None, typer.Option(help="Only in this table.")] = None,
    erase: Annotated[bool, typer.Option("--erase", help="For good, also what was deleted before.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before erasing.")] = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Delete the user's own rows (without --user: the shared ones), all of them or none. They can be restored."""
    from rem.cli.lookup import require_nonempty_keys
    from rem.cli.output import print_json

    require_nonempty_keys(keys)

    async def work(rem: Rem) -> list[Entity]:
        store = rem.store(user, tenant=tenant)
        rows = list({row.id: row for key in keys for row in [await find_own_row(store, key, table, erase)]}.values())
        if erase and not yes:
            confirm(f"Erase {_names(rows)} for good?")
        async with store.transaction() as transaction:
            for row in rows:
                await (transaction.erase(row) if erase else transaction.delete(row))
        return rows

    gone = run_with_rem(work)
    if as_json:
        print_json([{"table": row.entity_type.table, "id": row.id, "key": row.key, "erased": erase} for row in gone])
    else:
        for row in gone:
            typer.echo(f"Erased {_name(row)}." if erase else _deleted_line(row, user, tenant))


def restore(
    table: Annotated[str, typer.Argument(help="The table that the row is in.")],
    row: Annotated[str, typer.Argument(metavar="ID", help="The id of the row, or its key.")],
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Bring one of the user's own deleted rows back (without --user: a shared one)."""

    async def work(rem: Rem) -> Entity:
        store = rem.store(user, tenant=tenant)
        deleted = await _only(await _deleted_rows(store, row, table), row, f"{table} has no deleted {row}")
        return await store.restore(type(deleted), deleted.id)

    typer.echo(f"Restored {_name(run_with_rem(work))}.")


async def find_own_row(store: Store, key: str, table: str | None, with_deleted: bool = False) -> Entity:
    """The one row of the scope's own that a key means."""
    found = await store.lookup(key, table=table)
    own = [row for row in found if row.user_id == store.scope.user_id]
    if not own and with_deleted:
        own = await _deleted_rows(store, key, table)
    shared = f"{key} is shared and not this user's: leave --user out to delete it for everyone"
    return await _only(own, key, shared if found else _nothing(store, key, table))


def _nothing(store: Store, key: str, table: str | None) -> str:
    if table is None and key in store.types.models:
        return f"Nothing answers to {key}. It is a table: to choose a row of it, write --table {key} before its key"
    return f"Nothing answers to {key}"


async def _only(rows: list[Entity], key: str, nothing: str) -> Entity:
    from rem.errors import InvalidInputError, NotFoundError

    if not rows:
        raise NotFoundError(f"{nothing}.")
    if len(rows) > 1:
        several = ", ".join(f"{_name(row)} (id {row.id})" for row in rows)
        raise InvalidInputError(f"{key} means several rows: {several}. Choose one with --table or by its id.")
    return rows[0]


async def _deleted_rows(store: Store, label: str, table: str | None) -> list[Entity]:
    """The scope's own deleted rows with this id or key."""
    before, slash, behind = label.partition("/")
    if table is None and slash and before in store.types.models:
        table, label = before, behind
    models = list(store.types.models.values()) if table is None else [store.types.get_model(table)]
    where = await _identity(store, label)
    rows = [row for model in models for row in await store.find(model, where, with_deleted=True)]
    return [row for row in rows if row.deleted_at is not None and row.user_id == store.scope.user_id]


async def _identity(store: Store, label: str) -> dict[str, UUID | str]:
    try:
        return {"id": UUID(label)}
    except ValueError:
        return {"key": await store.normalize_key(label)}


def _deleted_line(row: Entity, user: str | None, tenant: str) -> str:
    from rem.cli.output import format_command

    back = format_command("restore", row.entity_type.table, str(row.id), user=user, tenant=tenant)
    return f"Deleted {_name(row)}; `{back}` brings it back."


def _names(rows: list[Entity]) -> str:
    return ", ".join(map(_name, rows))


def _name(row: Entity) -> str:
    return f"{row.entity_type.table}/{row.key or row.id}"
