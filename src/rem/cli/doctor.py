"""`rem doctor`: is everything as it should be, and if not, what to do."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from typing import Literal

import typer

from rem.cli.runtime import Json, run

Mark = Literal["ok", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    mark: Mark
    finding: str


def doctor(as_json: Json = False) -> None:
    """Check the installation, the settings, the server, the schema and the mirrors; exit 1 if something is wrong."""
    from rem.cli.output import print_json

    checks = run(_checks)
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            typer.echo(f"{'ok     ' if check.mark == 'ok' else 'PROBLEM'}  {check.name:<10} {check.finding}")
    if any(check.mark == "problem" for check in checks):
        raise typer.Exit(1)


async def _checks() -> list[Check]:
    from rem.errors import RemError

    version = platform.python_version()
    found = [Check("python", "ok" if sys.version_info >= (3, 11) else "problem", version)]
    for name, look in (
        ("settings", _settings),
        ("database", _database),
        ("schema", _schema),
        ("mirrors", _mirrors),
        ("search", _search),
        ("sql", _sql),
    ):
        try:
            found.append(Check(name, "ok", await look()))
        except RemError as error:
            found.append(Check(name, "problem", str(error)))
            break
    return found


async def _settings() -> str:
    from rem.settings import get_settings

    settings = get_settings()
    kind = "POSTGRES__CONNECTION_STRING" if settings.postgres.connection_string else "embedded server"
    return f"{kind}, REM_HOME {settings.rem_home}"


async def _database() -> str:
    from rem.cli.runtime import tell
    from rem.db.database import Database
    from rem.db.preflight import read_facts, require_fit
    from rem.settings import get_settings

    database = Database(get_settings(), tell)
    async with database.single_connection() as connection:
        facts = await read_facts(connection)
    require_fit(facts)
    vector = facts.vector.installed or "not installed yet"
    return f"PostgreSQL {facts.version}, pgvector {vector}, {database.describe_address()}"


async def _schema() -> str:
    from rem.app import Rem
    from rem.cli.output import counted
    from rem.cli.runtime import tell
    from rem.db.migrations import Migrator

    async with Rem.open(on_progress=tell) as rem, rem.database.connection() as connection:
        migrations = await Migrator(connection).status()
    return f"{counted(len(migrations), 'migration')}, all of them applied"


async def _mirrors() -> str:
    from rem.app import Rem
    from rem.errors import DatabaseError

    async with Rem.open() as rem:
        report = await rem.check_cache()
    if not report.is_exact:
        raise DatabaseError(
            f"{report.wrong_keys} keys and {report.wrong_edges} edges differ from the tables: "
            "run `rem db rebuild-cache`."
        )
    return f"{report.keys} keys and {report.edges} edges, exactly as the tables have them"


async def _sql() -> str:
    from rem.app import Rem
    from rem.db.sandbox import SqlSandbox
    from rem.query.sql_gate import check_select
    from rem.settings import get_settings

    async with Rem.open() as rem:
        sandbox = SqlSandbox(rem.database, get_settings(), check_select)
        try:
            gaps = await sandbox.gaps()
        finally:
            await sandbox.close()
    return f"works; only REM's own check holds off that {'; '.join(gaps)}" if gaps else "works, behind every wall"


async def _search() -> str:
    from rem.app import Rem
    from rem.cli.output import counted
    from rem.errors import DatabaseError

    async with Rem.open() as rem:
        state = await rem.check_index()
        why_by_words = await rem.try_models()
    if state.forgotten:
        raise DatabaseError(f"{counted(state.forgotten, 'row')} of text are not indexed: run `rem db index --anew`.")
    waiting = f"; {counted(state.waiting.rows, 'row')} waiting" if state.waiting.rows else ""
    by = f"embedded by {state.model}" if state.model else "none embedded yet"
    return f"{counted(state.passages, 'passage')}, {state.embedded} {by}{waiting}" + (
        f". {why_by_words}" if why_by_words else ""
    )
