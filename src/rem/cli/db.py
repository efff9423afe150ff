"""`rem db …`: the database and what goes in and out of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rem.cli.runtime import Json, Tenant, User, run, run_with_rem, tell

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.db.database import Connection
    from rem.db.embedded.server import EmbeddedServer
    from rem.db.load import LoadReport
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
def status(as_json: Json = False) -> None:
    """Show the server, the schema's version and how much is stored."""
    from rem.cli.status import print_status

    run(lambda: print_status(as_json))


@app.command()
def migrate(as_json: Json = False) -> None:
    """Bring the schema to the version that this REM needs."""
    from rem.cli.output import print_json

    applied = run(_migrate)
    if as_json:
        print_json({"applied": applied})
    else:
        typer.echo(f"Applied {', '.join(applied)}." if applied else "The schema is up to date.")


@app.command()
def rollback(
    steps: Annotated[int, typer.Option(min=1, help="How many migrations to take back.")] = 1,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Take back the newest migrations. What only they hold is lost."""
    from rem.cli.output import print_json

    if not yes:
        typer.confirm(f"Take back {steps} migration(s)? Their tables and what is in them are dropped.", abort=True)
    undone = run(lambda: _rollback(steps))
    if as_json:
        print_json({"rolled_back": undone})
    else:
        typer.echo(f"Took back {', '.join(undone)}." if undone else "There is nothing to take back.")


@app.command("rebuild-cache")
def rebuild_cache(as_json: Json = False) -> None:
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
    user: User = None,
    tenant: Tenant = "default",
    as_json: Json = False,
) -> None:
    """Load YAML files, all of them or nothing. Loading the same rows again updates them."""
    from rem.cli.output import print_json, progress_bar

    async def work(rem: Rem) -> LoadReport:
        with progress_bar("Loading") as on_rows:
            return await rem.load(*files, user=user, tenant=tenant, on_rows=on_rows)

    report = run_with_rem(work)
    if as_json:
        print_json(report)
    else:
        print_load_report(report)


@app.command()
def dump(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of standard output.")] = None,
    user: User = None,
    tenant: Tenant = "default",
    with_deleted: Annotated[bool, typer.Option(help="Also what is deleted but can be restored.")] = False,
) -> None:
    """Write the user's own rows (or the shared ones) as YAML that `rem db load` reads."""
    from rem.cli.output import progress_bar
    from rem.db.dump import replacing

    async def work(rem: Rem) -> int:
        if output is None:
            return await rem.dump(sys.stdout, user=user, tenant=tenant, with_deleted=with_deleted)
        with progress_bar("Dumping") as on_rows, replacing(output) as stream:
            return await rem.dump(
                stream,
                user=user,
                tenant=tenant,
                with_deleted=with_deleted,
                on_rows=lambda done: on_rows(done, None),
            )

    tell(f"{run_with_rem(work)} rows.")


@app.command()
def register(
    entity: Annotated[str, typer.Argument(help="The class, as package.module:Class.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the migration.")] = False,
    as_json: Json = False,
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

    run_with_rem(work)


def print_load_report(report: LoadReport) -> None:
    """What a load did, for people."""
    from rem.cli.output import print_table

    print_table(
        ["table", "new", "updated", "unchanged", "left deleted"],
        [
            [table, counts["inserted"], counts["updated"], counts["unchanged"], counts["deleted"]]
            for table, counts in report.tables.items()
        ],
    )
    if report.deleted:
        shown = ", ".join(report.deleted[:10])
        typer.echo(f"Deleted before, and left deleted: {shown}{' ...' if len(report.deleted) > 10 else ''}")
    if report.dangling:
        typer.echo(f"{report.dangling} edges point at keys that do not exist yet; they are kept.")


def _import_entity(path: str) -> type[Entity]:
    import importlib

    from rem.errors import InvalidInputError
    from rem.models import Entity

    module_name, _, class_name = path.partition(":")
    # The user's own modules are where the command is called.
    sys.path.insert(0, str(Path.cwd()))
    try:
        model = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(f"{path!r} cannot be imported ({error}): write package.module:Class.") from error
    if not (isinstance(model, type) and issubclass(model, Entity)):
        raise InvalidInputError(f"{path} is not a subclass of rem.Entity.")
    return model


def _settings() -> Settings:
    from rem.settings import get_settings

    return get_settings()


def _embedded_server() -> EmbeddedServer:
    from rem.db.database import embedded_server
    from rem.errors import InvalidInputError

    server = embedded_server(_settings(), tell)
    if server is None:
        raise InvalidInputError(
            "POSTGRES__CONNECTION_STRING is set, so REM uses that server and runs none of its own: unset it first."
        )
    return server


async def _migrate() -> list[str]:
    from rem.db.database import Database, migrate
    from rem.db.preflight import read_facts, require_fit

    database = Database(_settings(), tell)
    async with database.single_connection() as connection:
        facts = await read_facts(connection)
        require_fit(facts)
        return await migrate(connection, _settings(), facts)


async def _rollback(steps: int) -> list[str]:
    from rem.db.database import Database

    async with Database(_settings(), tell).single_connection() as connection:
        return await _rollback_on(connection, steps)


async def _rollback_on(connection: Connection, steps: int) -> list[str]:
    from rem.db.migrations import Migrator
    from rem.db.preflight import read_facts

    return await Migrator(connection, (await read_facts(connection)).search_path).rollback(steps)
