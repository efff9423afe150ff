"""`rem db`: manage the server and the schema; load, dump, index and register data."""

from __future__ import annotations

import sys
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rem.cli.output import format_command, print_table
from rem.cli.runtime import (
    JsonOption,
    TenantOption,
    UserOption,
    YesOption,
    confirm,
    print_to_stderr,
    run_async,
    run_with_rem,
)
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rem.app import Rem
    from rem.db.database import Connection
    from rem.db.embedded.server import EmbeddedServer
    from rem.db.load import LoadReport
    from rem.db.migrator import MigrationPlan
    from rem.db.store import DanglingEdge
    from rem.models import Entity
    from rem.settings import Settings


MAX_PRINTED_NAMES = 10

app = typer.Typer(help="Manage the database; load, dump and index data.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def start() -> None:
    """Start the embedded PostgreSQL server. It runs until `rem db stop`, or until it is idle for a while."""
    server = _embedded_server()
    server.ensure_running()
    echo(f"The embedded server is running in {server.data_dir}.")


@app.command()
def stop() -> None:
    """Stop the embedded PostgreSQL server."""
    stopped = _embedded_server().stop()
    echo("Stopped." if stopped else "The embedded server was not running.")


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Show the server, the schema version and the tables."""
    from rem.cli.db_status import print_status

    run_async(lambda: print_status(as_json))


@app.command()
def migrate(
    partitions: Annotated[
        int | None,
        typer.Option(help="Divide the large tables of a new database into so many partitions, by tenant.", min=2),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing. Exit with code 1 if there is something to migrate.")
    ] = False,
    wait: Annotated[
        float, typer.Option(min=0, help="The maximum time in seconds to wait for sessions that hold a table.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Migrate the schema to the version that this REM needs.

    Others may use the database meanwhile: the migration waits for them, and they wait for less than a second at a time.
    """
    from rem.cli.output import print_json

    if check:
        _check_migrations(as_json)
        return
    applied = run_async(lambda: _migrate(partitions, wait))
    if as_json:
        print_json({"applied": applied})
    else:
        echo(f"Applied {', '.join(applied)}." if applied else "The schema is up to date.")


@app.command()
def rollback(
    steps: Annotated[int, typer.Option(min=1, help="The number of migrations to undo.")] = 1,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Undo the newest migrations. The data in their tables is lost."""
    from rem.cli.output import print_json

    newest = run_async(lambda: _newest_migrations(steps))
    if newest and not yes:
        confirm(f"Undo {', '.join(newest)}? This drops their tables and all data in them.")
    undone = run_async(lambda: _rollback(steps))
    if as_json:
        print_json({"rolled_back": undone})
    else:
        echo(f"Undid {', '.join(undone)}." if undone else "There is nothing to undo.")
    if undone and _require_database_settings().postgres.connection_string is None:
        print_to_stderr("The next command that opens the embedded database migrates it again.")


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="The new file.")],
    as_json: JsonOption = False,
) -> None:
    """Write the memory of all users to one file.

    It has all tenants, their accounts and the hashes of their API keys. REM may be in use meanwhile.
    """
    from rem.cli.output import print_json, progress_bar
    from rem.db.backup import back_up

    settings = _require_database_settings()
    with progress_bar("Tables") as on_table:
        report = run_async(lambda: back_up(settings, file, on_progress=print_to_stderr, on_table=on_table))
    if as_json:
        print_json(report)
    else:
        echo(f"Wrote {report.size_bytes:,} bytes to {report.file}.")


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="A file that `rem db backup` wrote.")],
    as_json: JsonOption = False,
) -> None:
    """Restore a backup into an empty database."""
    from rem.cli.output import format_count, print_json, progress_bar
    from rem.db.backup import restore as restore_backup

    settings = _require_database_settings()
    with progress_bar("Tables") as on_table:
        report = run_async(lambda: restore_backup(settings, file, on_progress=print_to_stderr, on_table=on_table))
    if as_json:
        print_json(report)
        return
    echo(f"Restored {format_count(sum(report.rows.values()), 'row')}.")
    if report.migrated:
        echo(f"Applied {', '.join(report.migrated)}.")


@app.command("rebuild-cache")
def rebuild_cache(as_json: JsonOption = False) -> None:
    """Rebuild the key cache and the graph from the tables. REM does this itself after a crash."""
    from rem.cli.output import print_json

    async def work(rem: Rem) -> None:
        report = await rem.rebuild_cache()
        if as_json:
            print_json(report)
        else:
            echo(f"{report.keys} keys and {report.edges} edges.")

    run_with_rem(work)


@app.command()
def load(
    files: Annotated[list[Path], typer.Argument(help="YAML files: lists of {table, key_field, rows}.")],
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Load YAML files, all or nothing. Loading the same rows again updates them."""
    from loguru import logger

    from rem.cli.indexing import index_new_rows
    from rem.cli.output import format_count, print_json, progress_bar
    from rem.db.load import load as load_blocks
    from rem.db.load import read_files

    # Report an invalid file before a server is started.
    blocks = read_files(files)
    for block in blocks:
        logger.debug("{}: {} for {}", block.file, format_count(len(block.rows), "row"), block.table)

    async def work(rem: Rem) -> LoadReport:
        with progress_bar("Loading") as on_rows:
            report = await load_blocks(rem.for_user(user, tenant=tenant).store, blocks, on_rows)
        await index_new_rows(rem, user=user, tenant=tenant)
        return report

    report = run_with_rem(work)
    if as_json:
        print_json(report)
    else:
        print_load_report(report, user=user, tenant=tenant)


@app.command()
def index(
    rescan: Annotated[bool, typer.Option("--rescan", help="Index all rows again, not only new ones.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Index new rows of all users, and failed ones again.

    `rem serve` indexes new rows in the background, loading does it at once.
    """
    from rem.cli.indexing import index_with_progress
    from rem.cli.output import format_count, print_json

    report = run_with_rem(lambda rem: index_with_progress(partial(rem.index, rescan=rescan)))
    if as_json:
        print_json(report)
    else:
        echo(
            f"Indexed {format_count(report.rows, 'row')} as {format_count(report.passages, 'passage')}, "
            f"embedded {format_count(report.embedded, 'passage')}."
        )


@app.command()
def reembed(
    background: Annotated[
        bool, typer.Option("--background", help="Leave the work to a running `rem serve` and return at once.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Embed all passages with the configured model. The command can be interrupted and repeated."""
    from rem.cli.indexing import reembed_with_progress
    from rem.cli.output import format_count, print_json

    report = run_with_rem(lambda rem: reembed_with_progress(rem, background=background))
    if as_json:
        print_json(report)
    else:
        echo(
            f"Embedded {format_count(report.embedded, 'passage')}; {format_count(report.waiting, 'passage')} are left."
        )


@app.command()
def dangling(
    user: UserOption = None,
    tenant: TenantOption = "default",
    limit: Annotated[int, typer.Option(min=1, help="The maximum number of edges.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """List the user's edges whose target does not exist. Without --user: of shared rows."""
    from rem.cli.output import print_json, print_table

    async def work(rem: Rem) -> tuple[Sequence[DanglingEdge], int]:
        store = rem.for_user(user, tenant=tenant).store
        return await store.list_dangling_edges(limit), await store.count_dangling_edges()

    edges, total = run_with_rem(work)
    if as_json:
        print_json(edges)
    elif edges:
        print_table(
            ["src", "rel_type", "dst"], [[f"{edge.src_type}/{edge.src_key}", edge.rel_type, edge.dst] for edge in edges]
        )
    else:
        echo("Every edge of this memory has a target.")
    if total > len(edges):
        print_to_stderr(f"{total - len(edges)} more: see them with --limit {total}.")


@app.command()
def dump(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of standard output.")] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    with_deleted: Annotated[bool, typer.Option(help="Include deleted rows that can be restored.")] = False,
) -> None:
    """Write the user's own rows as YAML for `rem db load`. Without --user: the shared rows."""
    from rem.cli.output import format_count, progress_bar
    from rem.db.dump import open_for_replacement

    async def work(rem: Rem) -> int:
        if output is None:
            return await rem.for_user(user, tenant=tenant).dump(sys.stdout, with_deleted=with_deleted)
        with progress_bar("Dumping") as on_rows, open_for_replacement(output) as stream:
            return await rem.for_user(user, tenant=tenant).dump(
                stream, with_deleted=with_deleted, on_rows=lambda done: on_rows(done, None)
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
    """Create or update the table of your own entity class."""
    from rem.cli.output import print_json

    model = _import_entity(entity)

    async def work(rem: Rem) -> None:
        plan = await (rem.plan_registration(model) if dry_run else rem.register(model))
        if as_json:
            print_json({"table": plan.table, "sql": plan.sql, "applied": bool(plan.migration) and not dry_run})
        else:
            echo(plan.sql, nl=False)
        if plan.migration and not dry_run:
            print_to_stderr(f"Applied {plan.migration.name}.")

    run_with_rem(work)


def _import_entity(path: str) -> type[Entity]:
    import importlib

    from rem.errors import InvalidInputError
    from rem.models import Entity

    module_name, _, class_name = path.partition(":")
    if not module_name or not class_name:
        raise InvalidInputError(f"{path!r} is not a class: write package.module:Class.")
    # The user's modules are in the current folder.
    sys.path.insert(0, str(Path.cwd()))
    try:
        model = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(f"{path!r} cannot be imported ({error}): write package.module:Class.") from error
    except (Exception, SystemExit) as error:  # a module of the user may raise anything
        raise InvalidInputError(f"{module_name} fails when it is imported: {type(error).__name__}: {error}") from error
    if not (isinstance(model, type) and issubclass(model, Entity)):
        raise InvalidInputError(f"{path} is not a subclass of rem.Entity.")
    if not hasattr(model, "entity_type"):
        raise InvalidInputError(f'{path} has no table: write class {class_name}(Entity, table="...").')
    return model


def _require_database_settings() -> Settings:
    """Return the settings. Raise MemoryDisabledError if the database is switched off."""
    from rem.errors import MemoryDisabledError
    from rem.settings import get_settings

    settings = get_settings()
    if not settings.postgres.enabled:
        raise MemoryDisabledError
    return settings


def _embedded_server() -> EmbeddedServer:
    from rem.db.database import create_embedded_server
    from rem.errors import InvalidInputError

    server = create_embedded_server(_require_database_settings(), print_to_stderr)
    if server is None:
        raise InvalidInputError(
            "POSTGRES__CONNECTION_STRING is set, so REM does not run an embedded server: unset it first."
        )
    return server


def _check_migrations(as_json: bool) -> None:
    from rem.cli.output import print_json

    plan = run_async(_plan_migration)
    if as_json:
        print_json(plan)
    elif plan.is_empty:
        echo("The schema is up to date.")
    else:
        echo(f"Pending: {', '.join(plan.pending) or 'no migration, only changed functions'}.")
    for name, statements in ({} if as_json else plan.heavy_statements).items():
        echo(f"{name} locks tables while it reads or writes their rows:")
        for statement in statements:
            echo(f"  {statement}")
    if not plan.is_empty:
        raise typer.Exit(1)


async def _plan_migration() -> MigrationPlan:
    from rem.db.database import Database
    from rem.db.migrator import Migrator

    async with Database(_require_database_settings(), print_to_stderr).unpooled_connection() as connection:
        return await Migrator(connection).plan()


async def _migrate(partitions: int | None, max_wait_seconds: float) -> list[str]:
    from rem.db.database import Database, migrate_schema
    from rem.db.preflight import check_requirements, read_server_info

    database = Database(_require_database_settings(), print_to_stderr)
    async with database.unpooled_connection() as connection:
        facts = await read_server_info(connection)
        check_requirements(facts)
        settings = _require_database_settings()
        return await migrate_schema(
            connection, settings, facts, partitions, on_progress=print_to_stderr, max_wait_seconds=max_wait_seconds
        )


async def _newest_migrations(steps: int) -> list[str]:
    """Return the names of the migrations that a rollback would undo, newest first."""
    from rem.db.database import Database
    from rem.db.migrator import Migrator, refuse_earlier

    async with Database(_require_database_settings(), print_to_stderr).unpooled_connection() as connection:
        states = await Migrator(connection).status()
    refuse_earlier(status.name for status in states)
    # Migrations of one transaction have the same time; sorting keeps their order.
    applied = [(status.applied_at, status.name) for status in states if status.applied_at is not None]
    return [name for _, name in sorted(applied, key=itemgetter(0))[::-1][:steps]]


async def _rollback(steps: int) -> list[str]:
    from rem.db.database import Database

    async with Database(_require_database_settings(), print_to_stderr).unpooled_connection() as connection:
        return await _rollback_on(connection, steps)


async def _rollback_on(connection: Connection, steps: int) -> list[str]:
    from rem.db.migrator import Migrator, change_schema
    from rem.db.preflight import read_server_info

    migrator = Migrator(connection, (await read_server_info(connection)).search_path)
    return await change_schema(connection, lambda: migrator.rollback(steps), print_to_stderr)


def print_load_report(report: LoadReport, *, user: str | None = None, tenant: str = "default") -> None:
    """Print the counts by table, the rows that were left deleted, and the number of dangling edges."""
    print_table(
        ["table", "new", "updated", "unchanged", "left deleted"],
        [
            [table, counts["inserted"], counts["updated"], counts["unchanged"], counts["deleted"]]
            for table, counts in report.tables.items()
        ],
    )
    if report.deleted:
        shown = ", ".join(report.deleted[:MAX_PRINTED_NAMES])
        more = " ..." if len(report.deleted) > MAX_PRINTED_NAMES else ""
        restore_command = format_command("restore", "TABLE", "KEY", user=user, tenant=tenant)
        echo(f"Deleted before, and left deleted: {shown}{more}. `{restore_command}` restores one.")
    if report.dangling:
        dangling_command = format_command("db", "dangling", user=user, tenant=tenant)
        echo(
            f"Edges of this memory to keys that do not exist (yet): {report.dangling}. `{dangling_command}` lists them."
        )
