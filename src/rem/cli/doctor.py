"""`rem doctor`: check the installation, and say how to solve problems."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import typer

from rem.cli.doctor_deployment import Diagnosis, Probe, join_words, select_deployment_checks
from rem.cli.runtime import JsonOption, run_async

if TYPE_CHECKING:
    from datetime import datetime

    from rem.app import Rem
    from rem.settings import Settings

FINDING_COLUMN = 20
MAX_CLOCK_SKEW_SECONDS = 5.0
CONNECTIONS_OUTSIDE_POOLS = 2
"""The worker holds one, and so does the process that keeps the search index up to date."""
MAX_JOB_WAIT_SECONDS = 300.0
"""A job that is due and waits longer finds no worker, or too few."""
MAX_STATISTICS_AGE = timedelta(days=14)
CheckResult = Literal["ok", "warning", "problem"]
MARKS: dict[CheckResult, str] = {"ok": "ok     ", "warning": "WARNING", "problem": "PROBLEM"}


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    mark: CheckResult
    finding: str


def doctor(as_json: JsonOption = False) -> None:
    """Check settings, database, search, models and agents. Exit with code 1 if there is a problem.

    A warning is about something that works, but may cost data or time. The exit code stays 0.
    """
    from rem.cli.output import print_json, print_wrapped

    checks = run_async(_run_checks)
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            print_wrapped(f"{MARKS[check.mark]}  {check.name:<10} {check.finding}", indent=" " * FINDING_COLUMN)
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
    """Run the checks of the database, those of the memory only until the first problem."""
    from rem.settings import get_settings

    if not get_settings().postgres.enabled:
        return [Check("database", "ok", "switched off (POSTGRES__ENABLED=false): agents answer without memory")]
    needed = (("database", _check_database), ("operation", _check_operation))
    checks = await _run_until_problem(needed)
    if checks[-1].mark == "problem":
        return checks
    deployment = [await _run_check(name, probe) for name, probe in select_deployment_checks(get_settings())]
    if any(check.name == "durability" and check.mark == "problem" for check in deployment):
        # The checks of the memory may write, and a write would not end.
        return [*checks, *deployment]
    memory = (
        ("schema", _check_schema),
        ("mirrors", _check_mirrors),
        ("search", _check_search),
        ("sql", _check_sql),
        ("jobs", _check_jobs),
    )
    return [*checks, *deployment, *await _run_until_problem(memory)]


async def _run_until_problem(probes: Iterable[tuple[str, Probe]]) -> list[Check]:
    """Run checks of which each needs the one before."""
    checks: list[Check] = []
    for name, probe in probes:
        checks.append(await _run_check(name, probe))
        if checks[-1].mark == "problem":
            break
    return checks


async def _run_check(name: str, probe: Probe) -> Check:
    from rem.errors import RemError

    try:
        found = await probe()
        finding = found if isinstance(found, Diagnosis) else Diagnosis(found)
        return Check(name, "warning" if finding.is_warning else "ok", finding.text)
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
    if ignored := list_ignored_variables():
        parts.append(f"ignored, because there is no such group of settings: {', '.join(ignored)}")
    return "; ".join(parts)


async def _check_database() -> str | Diagnosis:
    from rem.cli.runtime import print_to_stderr
    from rem.db.addresses import describe_connection_string, get_direct_connection_string
    from rem.db.database import Database
    from rem.db.preflight import check_requirements, read_server_info
    from rem.db.topology import read_endpoint
    from rem.errors import SettingsError
    from rem.settings import get_settings

    settings = get_settings()
    database = Database(settings, print_to_stderr)
    async with database.unpooled_connection() as connection:
        endpoint = await read_endpoint(connection)
        if endpoint.is_pooler:
            address = describe_connection_string(get_direct_connection_string(settings.postgres))
            raise SettingsError(
                f"A connection pooler answers at {address}: set POSTGRES__DIRECT_CONNECTION_STRING to the address of "
                "the server itself (docs/deployment.md)."
            )
        facts = await read_server_info(connection)
    check_requirements(facts)
    vector = facts.vector.installed or facts.vector.available
    disk = f", {database.describe_disk_encryption()}" if database.is_embedded else ""
    text = f"PostgreSQL {facts.version}, pgvector {vector}, {database.describe_address()}{disk}"
    return Diagnosis(f"{text}: a standby, so REM only reads", is_warning=True) if endpoint.is_standby else text


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
        state = await connection.fetchrow(query("db/preflight", "operation"))
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


async def _check_schema() -> str | Diagnosis:
    from rem.app import Rem
    from rem.cli.output import format_count
    from rem.cli.runtime import print_to_stderr
    from rem.db.migrator import Migrator
    from rem.db.partitions import count_partitions
    from rem.db.sql import query

    await _refuse_pending_migrations()
    async with Rem.open(on_progress=print_to_stderr) as rem, rem.database.connection() as connection:
        migrations = await Migrator(connection).status()
        sealer = rem.database.sealer
        partitions = await count_partitions(connection)
        stale = await connection.fetchval(query("db/preflight", "stale_partitioned_tables"), MAX_STATISTICS_AGE)
    if sealer is None:
        texts = "texts are not encrypted"
    else:
        state = f"are encrypted with {sealer.keys.sealing_id}" if sealer.is_sealing else "are stored without encryption"
        texts = f"new texts {state} (`rem encryption status`)"
    parts = [f"{format_count(len(migrations), 'migration')}, all applied", texts]
    if partitions:
        parts.append(f"{partitions} partitions")
    if stale:
        parts.append(f"the statistics of {format_count(stale, 'divided table')} are old or missing: run ANALYZE")
    return Diagnosis("; ".join(parts), is_warning=bool(stale))


async def _refuse_pending_migrations() -> None:
    """Raise MigrationError that names what `rem db migrate` would do. REM migrates the embedded server itself."""
    from rem.db.database import Database
    from rem.db.migrator import Migrator
    from rem.errors import MigrationError
    from rem.settings import get_settings

    database = Database(get_settings())
    if database.is_embedded:
        return
    async with database.unpooled_connection() as connection:
        plan = await Migrator(connection).plan()
    if plan.is_empty:
        return
    pending = f"pending are {', '.join(plan.pending)}" if plan.pending else "only its functions differ"
    locks = "; some lock tables while they run: see `rem db migrate --check`" if plan.heavy_statements else ""
    raise MigrationError(f"The schema is not that of this version of REM: run `rem db migrate` ({pending}{locks}).")


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
    from rem.settings import get_settings

    async with Rem.open() as rem:
        sandbox = SqlSandbox(rem.database, get_settings())
        try:
            gaps = await sandbox.find_security_gaps()
        finally:
            await sandbox.close()
    return (
        f"works; the server lets every role do this: {'; '.join(gaps)} (docs/sql.md)"
        if gaps
        else "works, with all protections"
    )


async def _check_jobs() -> str | Diagnosis:
    from rem.app import Rem
    from rem.jobs.queue import JobQueue
    from rem.settings import get_settings

    heartbeat = get_settings().worker.heartbeat_seconds
    async with Rem.open() as rem:
        jobs = JobQueue(rem.database)
        counts, delays = await jobs.counts(), await jobs.delays(timedelta(seconds=2 * heartbeat))
    summary = f"{counts['queued']} queued, {counts['running']} running, {counts['dead']} dead"
    parts = [f"{summary}: see `rem jobs list --state dead`" if counts["dead"] else summary]
    if delays.oldest_due_seconds > MAX_JOB_WAIT_SECONDS:
        minutes = delays.oldest_due_seconds / 60
        parts.append(f"the oldest has waited for {minutes:.0f} minutes: start `rem worker`, or more of them")
    if delays.silent_jobs:
        parts.append(f"{delays.silent_jobs} running without a heartbeat: their worker is gone, and no other runs")
    return Diagnosis("; ".join(parts), is_warning=len(parts) > 1 or bool(counts["dead"]))


async def _check_search() -> str | Diagnosis:
    from rem.app import Rem
    from rem.cli.output import format_count
    from rem.errors import DatabaseError

    async with Rem.open() as rem:
        await _check_language(rem)
        state = await rem.check_index()
        why_words_only = await rem.check_models()
        models = join_words(rem.answer_models)
    if state.unindexed_rows:
        raise DatabaseError(
            f"{format_count(state.unindexed_rows, 'row')} of text are not indexed: run `rem db index --rescan`."
        )
    if state.set_aside:
        rows, passages = format_count(state.set_aside.rows, "row"), format_count(state.set_aside.passages, "passage")
        return Diagnosis(
            f"{rows} could not be indexed and {passages} not embedded after several tries. The log says why; "
            "`rem db index` tries them again.",
            is_warning=True,
        )
    waiting = f"; {format_count(state.backlog.rows, 'row')} waiting" if state.backlog.rows else ""
    embedded = f"{state.embedded} embedded by {state.model}" if state.model else "none embedded yet"
    ordered = f"; answers ordered by {models}" if models else ""
    reason = f". {why_words_only}" if why_words_only else ""
    return f"{format_count(state.passages, 'passage')}, {embedded}{waiting}{ordered}{reason}"


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
