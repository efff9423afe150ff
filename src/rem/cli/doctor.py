"""`rem doctor`: is everything as it should be, and if not, what to do."""

from __future__ import annotations

import platform
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import typer

from rem.cli.runtime import JsonOption, run_async

if TYPE_CHECKING:
    from rem.settings import Settings

CheckResult = Literal["ok", "problem"]
Probe: TypeAlias = Callable[[], Awaitable[str]]
"""Finds that something is in order, or raises an error that says what is not."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    mark: CheckResult
    finding: str


def doctor(as_json: JsonOption = False) -> None:
    """Check the installation, the settings, the server, the schema and the mirrors; exit 1 if something is wrong."""
    from rem.cli.output import print_json

    checks = run_async(_checks)
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            typer.echo(f"{'ok     ' if check.mark == 'ok' else 'PROBLEM'}  {check.name:<10} {check.finding}")
    if any(check.mark == "problem" for check in checks):
        raise typer.Exit(1)


async def _checks() -> list[Check]:
    version = platform.python_version()
    found = [Check("python", "ok" if sys.version_info >= (3, 11) else "problem", version)]
    found.append(await _check("settings", _settings))
    if found[-1].mark == "problem":
        return found
    found += await _memory_checks()
    for name, look in (("model", _model), ("recordings", _recordings), ("agents", _agents)):
        found.append(await _check(name, look))
    return found


async def _memory_checks() -> list[Check]:
    """What there is to say of the database. Each needs the one before it, so the first problem is the last one."""
    from rem.settings import get_settings

    if not get_settings().postgres.enabled:
        return [Check("database", "ok", "switched off (POSTGRES__ENABLED=false): agents answer, and forget")]
    found: list[Check] = []
    for name, look in (
        ("database", _database),
        ("schema", _schema),
        ("mirrors", _mirrors),
        ("search", _search),
        ("sql", _sql),
        ("jobs", _jobs),
    ):
        found.append(await _check(name, look))
        if found[-1].mark == "problem":
            break
    return found


async def _check(name: str, look: Probe) -> Check:
    from rem.errors import RemError

    try:
        return Check(name, "ok", await look())
    except RemError as error:
        return Check(name, "problem", str(error))


async def _settings() -> str:
    from rem.settings import get_settings

    settings = get_settings()
    kind = "POSTGRES__CONNECTION_STRING" if settings.postgres.connection_string else "embedded server"
    return f"{kind}, REM_HOME {settings.rem_home}"


async def _database() -> str:
    from rem.cli.runtime import print_to_stderr
    from rem.db.database import Database
    from rem.db.preflight import check_requirements, read_server_info
    from rem.settings import get_settings

    database = Database(get_settings(), print_to_stderr)
    async with database.unpooled_connection() as connection:
        facts = await read_server_info(connection)
    check_requirements(facts)
    vector = facts.vector.installed or "not installed yet"
    return f"PostgreSQL {facts.version}, pgvector {vector}, {database.describe_address()}"


async def _schema() -> str:
    from rem.app import Rem
    from rem.cli.output import format_count
    from rem.cli.runtime import print_to_stderr
    from rem.db.migrator import Migrator

    async with Rem.open(on_progress=print_to_stderr) as rem, rem.database.connection() as connection:
        migrations = await Migrator(connection).status()
    return f"{format_count(len(migrations), 'migration')}, all of them applied"


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
    from rem.query.verbs.sql_guard import check_select
    from rem.settings import get_settings

    async with Rem.open() as rem:
        sandbox = SqlSandbox(rem.database, get_settings(), check_select)
        try:
            gaps = await sandbox.find_security_gaps()
        finally:
            await sandbox.close()
    return f"works; only REM's own check holds off that {'; '.join(gaps)}" if gaps else "works, behind every wall"


async def _jobs() -> str:
    from rem.app import Rem
    from rem.jobs.queue import JobQueue

    async with Rem.open() as rem:
        counts = await JobQueue(rem.database).counts()
    found = f"{counts['queued']} queued, {counts['running']} running, {counts['dead']} dead"
    return f"{found}: see `rem jobs list --state dead`" if counts["dead"] else found


async def _search() -> str:
    from rem.app import Rem
    from rem.cli.output import format_count
    from rem.errors import DatabaseError

    async with Rem.open() as rem:
        state = await rem.check_index()
        why_by_words = await rem.try_models()
    if state.forgotten:
        raise DatabaseError(
            f"{format_count(state.forgotten, 'row')} of text are not indexed: run `rem db index --anew`."
        )
    waiting = f"; {format_count(state.waiting.rows, 'row')} waiting" if state.waiting.rows else ""
    by = f"embedded by {state.model}" if state.model else "none embedded yet"
    return f"{format_count(state.passages, 'passage')}, {state.embedded} {by}{waiting}" + (
        f". {why_by_words}" if why_by_words else ""
    )


async def _model() -> str:
    from rem.agents.model_registry import ModelRegistry
    from rem.settings import get_settings

    registry = ModelRegistry(get_settings())
    try:
        model = registry.resolve(None)
    finally:
        await registry.close()
    if model.is_local:
        return f"{model.name}, which answers with extracts of the memory: LLM__DEFAULT_MODEL names a language model"
    return f"{model.name} is set up (it was not called)"


async def _recordings() -> str:
    from rem.audio.local import is_installed
    from rem.audio.transcription import select_provider
    from rem.errors import AudioError
    from rem.settings import get_settings

    settings = get_settings()
    by_itself = settings.model_copy(update={"audio": settings.audio.model_copy(update={"provider": "auto"})})
    provider = select_provider(settings)
    if provider == "openai":
        if select_provider(by_itself) != "openai":
            raise AudioError("AUDIO__PROVIDER=openai needs AUDIO__API_KEY, or AUDIO__BASE_URL for another server.")
        return f"written down by {settings.audio.model} at {_address(settings)} (it was not called)"
    if provider == "local":
        if not is_installed():
            raise AudioError("AUDIO__PROVIDER=local needs the local model: `pip install 'remstack[audio]'`.")
        return "written down by the local model"
    if settings.audio.provider == "none":
        return "refused (AUDIO__PROVIDER=none)"
    return "refused, as nobody can write them down: set AUDIO__BASE_URL, or `pip install 'remstack[audio]'`"


def _address(settings: Settings) -> str:
    return settings.audio.base_url or settings.llm.base_url or "OpenAI"


async def _agents() -> str:
    """The agents that are files. Those in the database were checked when they were saved."""
    from rem.agents.catalog import AgentCatalog
    from rem.cli.output import format_count
    from rem.context import Scope
    from rem.errors import InvalidAgentError
    from rem.settings import get_settings

    catalog = AgentCatalog(get_settings(), None)
    if get_settings().agents.path is not None and not catalog.folder.is_dir():
        raise InvalidAgentError(f"AGENTS__PATH: there is no folder {catalog.folder}.")
    entries = await catalog.list_entries(Scope.for_user(None))
    problems = [entry.error for entry in entries if entry.error is not None]
    if problems:
        raise InvalidAgentError(" ".join(problems))
    own = sum(1 for entry in entries if entry.source.startswith(str(catalog.folder)))
    return f"{format_count(len(entries) - own, 'agent')} built in, {own} in {catalog.folder}"
