"""`rem lookup`: what answers to some keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rem.cli.runtime import Json, Tenant, User, run_with_rem

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.models import Entity


def lookup(
    keys: Annotated[list[str], typer.Argument(help='Readable keys, such as sarah-chen or "Sarah Chen".')],
    table: Annotated[str | None, typer.Option(help="Only in this table.")] = None,
    user: User = None,
    tenant: Tenant = "default",
    as_json: Json = False,
) -> None:
    """Show what answers to some keys, the user's own rows before the shared ones."""
    from rem.cli.output import print_json
    from rem.errors import NotFoundError

    async def work(rem: Rem) -> list[Entity]:
        return await rem.store(user, tenant=tenant).lookup(*keys, table=table)

    found = run_with_rem(work)
    if as_json:
        print_json([{"table": entity.entity_type.table, **entity.model_dump(mode="json")} for entity in found])
    else:
        for entity in found:
            _print_entity(entity)
    if not found:
        raise NotFoundError(f"Nothing answers to {', '.join(keys)}.")


def _print_entity(entity: Entity) -> None:
    typer.echo(f"{entity.entity_type.table}/{entity.key}")
    hidden = {"id", "key", "tenant_id", "user_id", "graph_edges", "created_at", "updated_at", "origin"}
    for name, value in entity.model_dump(mode="json", exclude_defaults=True, exclude=hidden).items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        typer.echo(f"  {name}: {text}")
    for edge in entity.graph_edges:
        typer.echo(f"  -> {edge.rel_type} {edge.dst}")
    typer.echo()
