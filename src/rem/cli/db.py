"""`rem db …`: the database and what goes in and out of it."""

from __future__ import annotations

import sys
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rem.cli.output import format_command, print_table
from rem.cli.runtime import JsonOption, TenantOption, UserOption, confirm, print_to_stderr, run_async, run_with_rem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rem.app import Rem
    from rem.db.database import Connection
    from rem.db.embedded.server import EmbeddedServer
    from rem.db.load import LoadReport
    from rem.db.store import DanglingEdge
    from rem.models import Entity
    from rem.settings import Settings


app = typer.Typer(help="The database and what goes in and out of it.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def start() -> None:
    """Start the embedded PostgreSQL server; it runs until `rem db stop` or until nobody has used it for a while."""
    server = _embedded_server()
    server.ensure_running()
    typer.echo(f"The embedded server is running in {server.data_dir}.")


@app.command()
def stop() -> None:
    """Stop the embedded PostgreSQL server."""
    stopped = _embedded_server().stop()
    typer.echo("Stopped." if stopped else "The embedded server was not running.")


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Show the server, the schema's version and how much is stored."""
    from rem.cli.db_status import print_status

    run_async(lambda: print_status(as_json))


@app.command()
def migrate(as_json: JsonOption = False) -> None:
    """Bring the schema to the version that this REM needs."""
    from rem.cli.output import print_json

    applied = run_async(_migrate)
    if as_json:
        print_json({"applied": applied})
    else:
        typer.echo(f"Applied {', '.join(applied)}." if applied else "The schema is up to date.")


@app.command()
def rollback(
    steps: Annotated[int, typer.Option(min=1, help="How many migrations to take back.")] = 1,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Take back the newest migrations. What only they hold is lost."""
    from rem.cli.output import print_json

    newest = run_async(lambda: _newest_migrations(steps))
    if newest and not yes:
        confirm(f"Take back {', '.join(newest)}? Their tables and what is in them are dropped.")
    undone = run_async(lambda: _rollback(steps))
    if as_json:
        print_json({"rolled_back": undone})
    else:
        typer.echo(f"Took back {', '.join(undone)}." if undone else "There is nothing to take back.")
    if undone and _settings().postgres.connection_string is None:
        print_to_stderr("The embedded database is migrated again by the next command that opens it.")


@app.command("rebuild-cache")
def rebuild_cache(as_json: JsonOption = False) -> None:
    """Fill the key cache and the graph anew from the tables. After a crash this happens by itself."""
    from rem.cli.output import print_json

    async def work(rem: Rem) -> None:
        report = await rem.rebuild_cache()
        if as_json:
            print_json(report)
        else:
            typer.echo(f"{report.keys} keys and {report.edges} edges.")

    run_with_rem(work)


@app.command()
def load(
    files: Annotated[list[Path], typer.Argument(help="YAML files: lists of {table, key_field, rows}.")],
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Load YAML files, all of them or nothing. Loading the same rows again updates them."""
    from loguru import logger

    from rem.cli.indexing import index_new_rows
    from rem.cli.output import format_count, print_json, progress_bar
    from rem.db.load import load as load_blocks
    from rem.db.load import read_files

    # A mistake in a file is told before a server is started for it.
    blocks = read_files(files)
    for block in blocks:
        logger.debug("{}: {} for {}", block.file, format_count(len(block.rows), "row"), block.table)

    async def work(rem: Rem) -> LoadReport:
        with progress_bar("Loading") as on_rows:
            report = await load_blocks(rem.store(user, tenant=tenant), blocks, on_rows)
        await index_new_rows(rem, user=user, tenant=tenant)
        return report

    report = run_with_rem(work)
    if as_json:
        print_json(report)
    else:
        print_load_report(report, user=user, tenant=tenant)


@app.command()
def index(
    anew: Annotated[bool, typer.Option("--anew", help="Index every row again, not only what waits.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Index what waits to be searched, of everyone. `rem serve` does it in the background; loading does it at once."""
    from rem.cli.indexing import index_with_progress
    from rem.cli.output import format_count, print_json

    report = run_with_rem(lambda rem: index_with_progress(rem, everyone=True, anew=anew))
    if as_json:
        print_json(report)
    else:
        typer.echo(
            f"Indexed {format_count(report.rows, 'row')} as {format_count(report.passages, 'passage')}, "
            f"embedded {format_count(report.embedded, 'passage')}."
        )


@app.command()
def reembed(
    background: Annotated[
        bool, typer.Option("--background", help="Leave the work to a running `rem serve`, and return at once.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Embed everything by the model that the settings name. Can be interrupted and called again."""
    from rem.cli.indexing import reembed_with_progress
    from rem.cli.output import format_count, print_json

    report = run_with_rem(lambda rem: reembed_with_progress(rem, background=background))
    if as_json:
        print_json(report)
    else:
        typer.echo(
            f"Embedded {format_count(report.embedded, 'passage')}; {format_count(report.waiting, 'passage')} are left."
        )


@app.command()
def dangling(
    user: UserOption = None,
    tenant: TenantOption = "default",
    limit: Annotated[int, typer.Option(min=1, help="The most to list.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """List the user's own edges (or the shared rows') whose target does not exist, or not yet."""
    from rem.cli.output import print_json, print_table

    async def work(rem: Rem) -> tuple[Sequence[DanglingEdge], int]:
        store = rem.store(user, tenant=tenant)
        return await store.list_dangling_edges(limit), await store.count_dangling_edges()

    edges, total = run_with_rem(work)
    if as_json:
        print_json(edges)
    elif edges:
        print_table(
            ["src", "rel_type", "dst"], [[f"{edge.src_type}/{edge.src_key}", edge.rel_type, edge.dst] for edge in edges]
        )
    else:
        typer.echo("Every edge of this memory leads somewhere.")
    if total > len(edges):
        print_to_stderr(f"{total - len(edges)} more: see them with --limit {total}.")


@app.command()
def dump(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of standard output.")] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    with_deleted: Annotated[bool, typer.Option(help="Also what is deleted but can be restored.")] = False,
) -> None:
    """Write the user's own rows (or the shared ones) as YAML that `rem db load` reads."""
    from rem.cli.output import format_count, progress_bar
    from rem.db.dump import open_for_replacement

    async def work(rem: Rem) -> int:
        if output is None:
            return await rem.dump(sys.stdout, user=user, tenant=tenant, with_deleted=with_deleted)
        with progress_bar("Dumping") as on_rows, open_for_replacement(output) as stream:
            return await rem.dump(
                stream,
                user=user,
                tenant=tenant,
                with_deleted=with_deleted,
                on_rows=lambda done: on_rows(done, None),
            )

    rows = run_with_rem(work)
    if output is None:
        sys.stdout.flush()
    print_to_stderr(f"{format_count(rows, 'row')}.")


@app.command()
def register(
    entity: Annotated[str, typer.Argument(help="The class, as package.module:Class.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the migration.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a table for an entity class of your own, or bring it up to date."""
    from rem.cli.output import print_json

    model = _import_entity(entity)

    async def work(rem: Rem) -> None:
        plan = await (rem.plan(model) if dry_run else rem.register(model))
        if as_json:
            print_json({"table": plan.table, "sql": plan.sql, "applied": bool(plan.migration) and not dry_run})
        else:
            typer.echo(plan.sql, nl=False)
        if plan.migration and not dry_run:
            print_to_stderr(f"Applied {plan.migration.name}.")

    run_with_rem(work)


def _import_entity(path: str) -> type[Entity]:
    import importlib

    from rem.errors import InvalidInputError
    from rem.models import Entity

    module_name, _, class_name = path.partition(":")
    if not module_name or not class_name:
        raise InvalidInputError(f"{path!r} names no class: write package.module:Class.")
    # The user's own modules are where the command is called.
    sys.path.insert(0, str(Path.cwd()))
    try:
        model = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(f"{path!r} cannot be imported ({error}): write package.module:Class.") from error
    except (Exception, SystemExit) as error:  # a module of the user's own may do anything
        raise InvalidInputError(f"{module_name} fails when it is imported: {type(error).__name__}: {error}") from error
    if not (isinstance(model, type) and issubclass(model, Entity)):
        raise InvalidInputError(f"{path} is not a subclass of rem.Entity.")
    if not hasattr(model, "entity_type"):
        raise InvalidInputError(f'{path} is not a type of your own: write class {class_name}(Entity, table="...").')
    return model


def _settings() -> Settings:
    """The settings of a database that is not switched off."""
    from rem.errors import MemoryDisabledError
    from rem.settings import get_settings

    settings = get_settings()
    if not settings.postgres.enabled:
        raise MemoryDisabledError
    return settings


def _embedded_server() -> EmbeddedServer:
    from rem.db.database import create_embedded_server
    from rem.errors import InvalidInputError

    server = create_embedded_server(_settings(), print_to_stderr)
    if server is None:
        raise InvalidInputError(
            "POSTGRES__CONNECTION_STRING is set, so REM uses that server and runs none of its own: unset it first."
        )
    return server


async def _migrate() -> list[str]:
    from rem.db.database import Database, migrate_schema
    from rem.db.preflight import check_requirements, read_server_info

    database = Database(_settings(), print_to_stderr)
    async with database.unpooled_connection() as connection:
        facts = await read_server_info(connection)
        check_requirements(facts)
        return await migrate_schema(connection, _settings(), facts)


async def _newest_migrations(steps: int) -> list[str]:
    """What a rollback would take back, newest first."""
    from rem.db.database import Database
    from rem.db.migrator import Migrator

    async with Database(_settings(), print_to_stderr).unpooled_connection() as connection:
        states = await Migrator(connection).status()
    # Those of one transaction have the same time, and stand in their order.
    applied = [(status.applied_at, status.name) for status in states if status.applied_at is not None]
    return [name for _, name in sorted(applied, key=itemgetter(0))[::-1][:steps]]


async def _rollback(steps: int) -> list[str]:
    from rem.db.database import Database

    async with Database(_settings(), print_to_stderr).unpooled_connection() as connection:
        return await _rollback_on(connection, steps)


async def _rollback_on(connection: Connection, steps: int) -> list[str]:
    from rem.db.migrator import Migrator
    from rem.db.preflight import read_server_info

    return await Migrator(connection, (await read_server_info(connection)).search_path).rollback(steps)


_MOST_DELETED = 10


def print_load_report(report: LoadReport, *, user: str | None = None, tenant: str = "default") -> None:
    """The counts by table, what was left deleted, and edges that lead nowhere."""
    print_table(
        ["table", "new", "updated", "unchanged", "left deleted"],
        [
            [table, counts["inserted"], counts["updated"], counts["unchanged"], counts["deleted"]]
            for table, counts in report.tables.items()
        ],
    )
    if report.deleted:
        shown = ", ".join(report.deleted[:_MOST_DELETED])
        more = " ..." if len(report.deleted) > _MOST_DELETED else ""
        restore = format_command("restore", "TABLE", "KEY", user=user, tenant=tenant)
        typer.echo(f"Deleted before, and left deleted: {shown}{more}. `{restore}` brings one back.")
    if report.dangling:
        dangling = format_command("db", "dangling", user=user, tenant=tenant)
        typer.echo(
            f"Edges of this memory to keys that do not exist (yet): {report.dangling}. They are kept; "
            f"`{dangling}` lists them."
        )
