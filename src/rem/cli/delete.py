"""`rem delete` and `rem restore`: delete or erase rows, and restore deleted ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption, audited, confirm, run_with_rem
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.db.store import Store
    from rem.models import Entity


def delete(
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="The keys of the rows, such as sarah-chen.")],
    table: Annotated[str | None, typer.Option(help="Only in this table.")] = None,
    erase: Annotated[
        bool, typer.Option("--erase", help="Erase them for good, even if they were deleted before.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation before erasing.")] = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Delete the rows with these keys: all of them, or none.

    Without --user: the shared rows. Deleted rows can be restored.
    """
    from rem.cli.lookup import require_nonempty_keys
    from rem.cli.output import print_json

    require_nonempty_keys(keys)

    async def work(rem: Rem) -> list[Entity]:
        store = rem.for_user(user, tenant=tenant).store
        rows = list({row.id: row for key in keys for row in [await find_own_row(store, key, table, erase)]}.values())
        if erase and not yes:
            confirm(f"Erase {', '.join(map(_row_name, rows))} for good?")
        async with store.transaction() as transaction:
            for row in rows:
                await (transaction.erase(row) if erase else transaction.delete(row))
                entry.add_target(row.entity_type.table, row.id)
            async with transaction.executor.connection() as connection:
                await rem.audit_log.record_in(connection, entry)
        return rows

    with audited("delete", tenant) as entry:
        deleted = run_with_rem(work)
    if as_json:
        print_json([{"table": row.entity_type.table, "id": row.id, "key": row.key, "erased": erase} for row in deleted])
    else:
        for row in deleted:
            echo(f"Erased {_row_name(row)}." if erase else _deleted_message(row, user, tenant))


def restore(
    table: Annotated[str, typer.Argument(help="The table that the row is in.")],
    row: Annotated[str, typer.Argument(metavar="ID", help="The id of the row, or its key.")],
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Restore one of the user's own deleted rows. Without --user: a shared row."""

    async def work(rem: Rem) -> Entity:
        store = rem.for_user(user, tenant=tenant).store
        deleted_rows = await _find_deleted_rows(store, row, table)
        deleted = _require_one(deleted_rows, row, f"{table} has no deleted {row}")
        return await store.restore(type(deleted), deleted.id)

    echo(f"Restored {_row_name(run_with_rem(work))}.")


async def find_own_row(store: Store, key: str, table: str | None, with_deleted: bool = False) -> Entity:
    """Return the scope's own row with this key. Raise an error if there is none, or more than one."""
    matches = await store.lookup(key, table=table)
    own_rows = [row for row in matches if row.user_id == store.scope.user_id]
    if not own_rows and with_deleted:
        own_rows = await _find_deleted_rows(store, key, table)
    shared = f"{key} is shared and not this user's: leave --user out to delete it for everyone"
    return _require_one(own_rows, key, shared if matches else _not_found_message(store, key, table))


def _not_found_message(store: Store, key: str, table: str | None) -> str:
    if table is None and key in store.types.models:
        return (
            f"Nothing is stored under {key}. {key} is a table: to choose one of its rows, write --table {key} before "
            "its key"
        )
    return f"Nothing is stored under {key}"


def _require_one(rows: list[Entity], key: str, not_found: str) -> Entity:
    from rem.errors import InvalidInputError, NotFoundError

    if not rows:
        raise NotFoundError(f"{not_found}.")
    if len(rows) > 1:
        names = ", ".join(f"{_row_name(row)} (id {row.id})" for row in rows)
        raise InvalidInputError(f"{key} means several rows: {names}. Choose one with --table or by its id.")
    return rows[0]


async def _find_deleted_rows(store: Store, label: str, table: str | None) -> list[Entity]:
    """Return the scope's own deleted rows with this id or key; the key may be written as table/key."""
    prefix, slash, rest = label.partition("/")
    if table is None and slash and prefix in store.types.models:
        table, label = prefix, rest
    models = list(store.types.models.values()) if table is None else [store.types.get_model(table)]
    where = await _id_or_key(store, label)
    rows = [row for model in models for row in await store.find(model, where, with_deleted=True)]
    return [row for row in rows if row.deleted_at is not None and row.user_id == store.scope.user_id]


async def _id_or_key(store: Store, label: str) -> dict[str, UUID | str]:
    try:
        return {"id": UUID(label)}
    except ValueError:
        return {"key": await store.normalize_key(label)}


def _deleted_message(row: Entity, user: str | None, tenant: str) -> str:
    from rem.cli.output import format_command

    restore_command = format_command("restore", row.entity_type.table, str(row.id), user=user, tenant=tenant)
    return f"Deleted {_row_name(row)}; `{restore_command}` restores it."


def _row_name(row: Entity) -> str:
    return f"{row.entity_type.table}/{row.key or row.id}"
