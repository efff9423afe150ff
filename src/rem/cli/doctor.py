"""`rem doctor`: check the installation, and say how to solve problems."""

from __future__ import annotations

import platform
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import typer

from rem.cli.runtime import JsonOption, run_async

if TYPE_CHECKING:
    from datetime import datetime

    from rem.app import Rem
    from rem.settings import Settings

FINDING_COLUMN = 20
MAX_CLOCK_SKEW_SECONDS = 5.0
CONNECTIONS_OUTSIDE_POOLS = 2
"""The worker holds one, and so does the process that keeps the search index up to date."""
CheckResult = Literal["ok", "problem"]
Probe: TypeAlias = Callable[[], Awaitable[str]]
"""Describes one part of the installation. Raises a RemError if something is wrong with it."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    mark: CheckResult
    finding: str


def doctor(as_json: JsonOption = False) -> None:
    """Check settings, database, search, models and agents. Exit with code 1 if there is a problem."""
    from rem.cli.output import print_json, print_wrapped

    checks = run_async(_run_checks)
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            mark = "ok     " if check.mark == "ok" else "PROBLEM"
            print_wrapped(f"{mark}  {check.name:<10} {check.finding}", indent=" " * FINDING_COLUMN)
    if any(check.mark == "problem" for check in checks):
        raise typer.Exit(1)


async def _run_checks() -> list[Check]:
    version = platform.python_version()
    checks = [Check("python", "ok" if sys.version_info >= (3, 11) else "problem", version)]
    checks.append(await _run_check("settings", _check_settings))
    if checks[-1].mark == "problem":
        return checks
    checks += await _run_database_checks()
    for name, probe in (("model", _check_model), ("recordings", _check_recordings), ("agents", _check_agents)):
        checks.append(await _run_check(name, probe))
    return checks


async def _run_database_checks() -> list[Check]:
    """Run the checks of the database until the first problem, because each check needs the one before."""
    from rem.settings import get_settings

    if not get_settings().postgres.enabled:
        return [Check("database", "ok", "switched off (POSTGRES__ENABLED=false): agents answer without memory")]
    checks: list[Check] = []
    for name, probe in (
        ("database", _check_database),
        ("operation", _check_operation),
        ("schema", _check_schema),
        ("mirrors", _check_mirrors),
        ("search", _check_search),
        ("sql", _check_sql),
        ("jobs", _check_jobs),
    ):
        checks.append(await _run_check(name, probe))
        if checks[-1].mark == "problem":
            break
    return checks


async def _run_check(name: str, probe: Probe) -> Check:
    from rem.errors import RemError

    try:
        return Check(name, "ok", await probe())
    except RemError as error:
        return Check(name, "problem", str(error))


async def _check_settings() -> str:
    from rem.cli.runtime import load_settings
    from rem.settings import list_ignored_variables

    settings = load_settings()
    server = "POSTGRES__CONNECTION_STRING" if settings.postgres.connection_string else "embedded server"
    file = f"settings of {settings.rem_config}" if settings.rem_config else "no config file"
    parts = [f"{server}, REM_HOME {settings.rem_home}, {file}"]
    user = f"default user {settings.rem_user} (REM_USER)" if settings.rem_user else "no default user (REM_USER)"
    parts += [user, f"time zone {settings.rem_time_zone}"]
    if not settings.memory.enabled:
        parts.append("chat stores nothing (MEMORY__ENABLED=false)")
    if unused := settings.memory.vector_store.unused_names:
        parts.append(f"memory.vector_store: no effect, because vectors are stored in PostgreSQL: {', '.join(unused)}")
    if ignored := list_ignored_variables():
        parts.append(f"ignored, because there is no such group of settings: {', '.join(ignored)}")
    return "; ".join(parts)


async def _check_database() -> str:
    from rem.cli.runtime import print_to_stderr
    from rem.db.database import Database
    from rem.db.preflight import check_requirements, read_server_info
    from rem.settings import get_settings

    database = Database(get_settings(), print_to_stderr)
    async with database.unpooled_connection() as connection:
        facts = await read_server_info(connection)
    check_requirements(facts)
    vector = facts.vector.installed or "not installed yet"
    disk = f", {database.describe_disk_encryption()}" if database.is_embedded else ""
    return f"PostgreSQL {facts.version}, pgvector {vector}, {database.describe_address()}{disk}"


async def _check_operation() -> str:
    """Check the clocks, the number of connections and the archive of the server."""
    from datetime import UTC, datetime

    from rem.db.database import Database
    from rem.db.sql import query
    from rem.errors import DatabaseError
    from rem.settings import get_settings

    settings = get_settings()
    async with Database(settings).unpooled_connection() as connection:
        before = datetime.now(UTC)
        state = await connection.fetchrow(query("preflight", "operation"))
        after = datetime.now(UTC)
    assert state is not None  # noqa: S101  # one row, always
    skew = measure_clock_skew(before, state["clock"], after)
    if skew > MAX_CLOCK_SKEW_SECONDS:
        raise DatabaseError(
            f"The clocks of this machine and of the database differ by {skew:.0f} s: synchronise both (NTP). Tokens, "
            "schedules and times of memories depend on them."
        )
    needed, allowed = count_connections(settings), state["max_connections"]
    if needed > allowed:
        raise DatabaseError(
            f"One `rem serve` may open {needed} connections, and the server allows {allowed}: lower "
            "POSTGRES__POOL_MAX_SIZE or API__WORKERS, or raise max_connections of the server."
        )
    if state["is_archiving"] and state["is_archive_failing"]:
        raise DatabaseError("The server fails to archive its write-ahead log: see its log, and archive_command.")
    parts = [f"clocks agree; {state['connections']} of {allowed} connections in use"]
    parts.append(f"one `rem serve` may open {needed}")
    if state["archived_at"] is not None:
        parts.append(f"write-ahead log archived at {state['archived_at']:%Y-%m-%d %H:%M} UTC")
    return "; ".join(parts)


def measure_clock_skew(before: datetime, clock: datetime, after: datetime) -> float:
    """Return by how many seconds another clock differs at least, if it was read between two times of this machine."""
    return max((before - clock).total_seconds(), (clock - after).total_seconds(), 0.0)


def count_connections(settings: Settings) -> int:
    """Return the number of database connections that one `rem serve` may open: pools, worker and index."""
    pools = max(settings.postgres.pool_max_size, settings.postgres.pool_min_size) + settings.sql.pool_max_size
    return settings.api.workers * (pools + CONNECTIONS_OUTSIDE_POOLS)


async def _check_schema() -> str:
    from rem.app import Rem
    from rem.cli.output import format_count
    from rem.cli.runtime import print_to_stderr
    from rem.db.migrator import Migrator

    async with Rem.open(on_progress=print_to_stderr) as rem, rem.database.connection() as connection:
        migrations = await Migrator(connection).status()
        sealer = rem.database.sealer
    if sealer is None:
        texts = "texts are not encrypted"
    else:
        state = f"are encrypted with {sealer.keys.sealing_id}" if sealer.is_sealing else "are stored without encryption"
        texts = f"new texts {state} (`rem encryption status`)"
    return f"{format_count(len(migrations), 'migration')}, all applied; {texts}"


async def _check_mirrors() -> str:
    from rem.app import Rem
    from rem.errors import DatabaseError

    async with Rem.open() as rem:
        report = await rem.check_cache()
    if not report.is_exact:
        raise DatabaseError(
            f"{report.wrong_keys} keys and {report.wrong_edges} edges differ from the tables: "
            "run `rem db rebuild-cache`."
        )
    return f"{report.keys} keys and {report.edges} edges, equal to the tables"


async def _check_sql() -> str:
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
    return f"works; only REM's own check prevents that {'; '.join(gaps)}" if gaps else "works, with all protections"


async def _check_jobs() -> str:
    from rem.app import Rem
    from rem.jobs.queue import JobQueue

    async with Rem.open() as rem:
        counts = await JobQueue(rem.database).counts()
    summary = f"{counts['queued']} queued, {counts['running']} running, {counts['dead']} dead"
    return f"{summary}: see `rem jobs list --state dead`" if counts["dead"] else summary


async def _check_search() -> str:
    from rem.app import Rem
    from rem.cli.output import format_count
    from rem.errors import DatabaseError

    async with Rem.open() as rem:
        await _check_language(rem)
        state = await rem.check_index()
        why_words_only = await rem.check_models()
    if state.unindexed_rows:
        raise DatabaseError(
            f"{format_count(state.unindexed_rows, 'row')} of text are not indexed: run `rem db index --rescan`."
        )
    waiting = f"; {format_count(state.backlog.rows, 'row')} waiting" if state.backlog.rows else ""
    embedded = f"{state.embedded} embedded by {state.model}" if state.model else "none embedded yet"
    return f"{format_count(state.passages, 'passage')}, {embedded}{waiting}" + (
        f". {why_words_only}" if why_words_only else ""
    )


async def _check_language(rem: Rem) -> None:
    from rem.db.preflight import list_text_search_languages
    from rem.errors import SettingsError
    from rem.text import did_you_mean

    language = rem.settings.search.language
    async with rem.database.connection() as connection:
        languages = await list_text_search_languages(connection)
    if language not in languages:
        advice = did_you_mean(language, languages) or f" There are {', '.join(languages)}."
        raise SettingsError(f"SEARCH__LANGUAGE: the database has no text search configuration {language}.{advice}")


async def _check_model() -> str:
    from rem.agents.model_registry import ModelRegistry
    from rem.settings import get_settings

    registry = ModelRegistry(get_settings())
    try:
        model = registry.resolve(None)
    finally:
        await registry.close()
    if model.is_local:
        return (
            f"{model.name}, which answers with excerpts from the memory; set LLM__DEFAULT_MODEL to use a language model"
        )
    return f"{model.name} is configured (it was not called)"


async def _check_recordings() -> str:
    from rem.audio.local import is_installed
    from rem.audio.transcription import select_provider
    from rem.errors import AudioError
    from rem.settings import get_settings

    settings = get_settings()
    with_auto = settings.model_copy(update={"audio": settings.audio.model_copy(update={"provider": "auto"})})
    provider = select_provider(settings)
    if provider == "openai":
        if select_provider(with_auto) != "openai":
            raise AudioError("AUDIO__PROVIDER=openai needs AUDIO__API_KEY, or AUDIO__BASE_URL for another server.")
        return f"transcribed by {settings.audio.model} at {_transcription_address(settings)} (it was not called)"
    if provider == "local":
        if not is_installed():
            raise AudioError("AUDIO__PROVIDER=local needs the local model: `pip install 'remstack[audio]'`.")
        return "transcribed by the local model"
    if settings.audio.provider == "none":
        return "refused (AUDIO__PROVIDER=none)"
    return "refused, because there is no transcription: set AUDIO__BASE_URL, or `pip install 'remstack[audio]'`"


def _transcription_address(settings: Settings) -> str:
    return settings.audio.base_url or settings.llm.base_url or "OpenAI"


async def _check_agents() -> str:
    """Check the agents that are files. Those in the database were checked when they were saved."""
    from rem.agents.catalog import AgentCatalog
    from rem.cli.output import format_count
    from rem.context import Scope
    from rem.errors import InvalidAgentError
    from rem.settings import get_settings

    catalog = AgentCatalog(get_settings(), None)
    if get_settings().agents.path is not None and not catalog.folder.is_dir():
        raise InvalidAgentError(f"AGENTS__PATH: there is no folder {catalog.folder}.")
    entries = await catalog.list_entries(Scope.for_user(None))
    issues = [entry.error for entry in entries if entry.error is not None]
    if issues:
        raise InvalidAgentError(" ".join(issues))
    in_folder = sum(1 for entry in entries if entry.source.startswith(str(catalog.folder)))
    return f"{format_count(len(entries) - in_folder, 'agent')} built in, {in_folder} in {catalog.folder}"
