"""`rem doctor`: the database, the language model, recordings and agents."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from rem.cli.doctor import measure_clock_skew
from rem.db.migrator import builtin_migrations
from tests.rem_command import output, rem

JOBS_WITHOUT_WORKER = """
INSERT INTO rem_jobs.jobs (kind, state, worker, created_at, due_at, is_due)
VALUES ('prune', 'queued', NULL, now() - interval '20 min', now() - interval '20 min', true),
       ('prune', 'queued', NULL, now() - interval '2 days', now() + interval '1 day', false),
       ('prune', 'running', gen_random_uuid(), now() - interval '1 hour', now() - interval '1 hour', true)
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Return settings without a database."""
    return {"REM_HOME": str(tmp_path), "POSTGRES__ENABLED": "false"}


def run_doctor(settings: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Return mark and finding of each check by name. The exit code must be 1 if there is a problem."""
    done = rem("doctor", "--json", settings=settings)
    checks = {check["name"]: (check["mark"], check["finding"]) for check in json.loads(done.stdout)}
    assert done.returncode == any(mark == "problem" for mark, _ in checks.values()), done.stderr
    return checks


def test_doctor_skips_database_checks_when_the_database_is_off(home: dict[str, str], tmp_path: Path) -> None:
    checks = run_doctor(home)
    assert list(checks) == ["python", "settings", "database", "model", "recordings", "agents"]
    assert checks["database"][0] == "ok"
    assert "switched off (POSTGRES__ENABLED=false)" in checks["database"][1]
    assert list(tmp_path.iterdir()) == []


def test_doctor_runs_the_other_checks_when_the_database_fails(tmp_path: Path) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/x"
    checks = run_doctor(
        {
            "REM_HOME": str(tmp_path),
            "POSTGRES__CONNECTION_STRING": nowhere,
            "POSTGRES__CONNECT_TIMEOUT_SECONDS": "1",
        }
    )
    assert [name for name, (mark, _) in checks.items() if mark == "problem"] == ["database"]
    assert list(checks)[-3:] == ["model", "recordings", "agents"]


def test_doctor_names_the_language_model_or_its_missing_setting(home: dict[str, str]) -> None:
    mark, finding = run_doctor(home)["model"]
    assert (mark, finding.startswith("rem:local")) == ("ok", True)
    mark, finding = run_doctor({**home, "LLM__DEFAULT_MODEL": "openai:gpt-4o"})["model"]
    assert (mark, "LLM__OPENAI_API_KEY" in finding) == ("problem", True)
    mark, finding = run_doctor({**home, "LLM__DEFAULT_MODEL": "openai:gpt-4o", "LLM__OPENAI_API_KEY": "k"})["model"]
    assert (mark, finding.startswith("openai:gpt-4o")) == ("ok", True)
    mark, finding = run_doctor({**home, "LLM__DEFAULT_MODEL": "opnai:gpt-4o"})["model"]
    assert (mark, "opnai" in finding) == ("problem", True)


def test_doctor_names_the_transcription_provider(home: dict[str, str]) -> None:
    for settings, mark, finding in (
        ({"AUDIO__PROVIDER": "none"}, "ok", "AUDIO__PROVIDER=none"),
        ({"AUDIO__PROVIDER": "openai"}, "problem", "AUDIO__API_KEY"),
        ({"AUDIO__BASE_URL": "http://127.0.0.1:9/v1"}, "ok", "whisper-1 at http://127.0.0.1:9/v1"),
        ({"AUDIO__PROVIDER": "openai", "AUDIO__API_KEY": "sk-secret"}, "ok", "whisper-1 at OpenAI"),
    ):
        checks = run_doctor({**home, **settings})["recordings"]
        assert (checks[0], finding in checks[1]) == (mark, True), checks
        assert "sk-secret" not in checks[1]


def test_doctor_names_invalid_agent_files(home: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    assert str(folder) in run_doctor(home)["agents"][1]
    folder.mkdir()
    (folder / "bad.yaml").write_text("x: [", encoding="utf-8")
    (folder / "worse.yaml").write_text("type: object", encoding="utf-8")
    mark, finding = run_doctor(home)["agents"]
    assert mark == "problem"
    assert str(folder / "bad.yaml") in finding
    assert str(folder / "worse.yaml") in finding
    mark, finding = run_doctor({**home, "AGENTS__PATH": str(tmp_path / "none")})["agents"]
    assert (mark, "AGENTS__PATH" in finding) == ("problem", True)


@pytest.mark.parametrize(
    "words",
    ["start", "stop", "status", "status --json", "migrate", "rollback --yes", "rebuild-cache", "index", "dump"],
)
def test_db_commands_fail_when_the_database_is_off(home: dict[str, str], tmp_path: Path, words: str) -> None:
    done = rem("db", *words.split(), settings=home)
    assert (done.returncode, done.stdout) == (5, "")
    assert "POSTGRES__ENABLED=true" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_doctor_lists_all_checks_and_fails_on_a_problem(dsn: str) -> None:
    checks = json.loads(output("doctor", "--json", settings={"POSTGRES__CONNECTION_STRING": dsn}))
    assert [(check["name"], check["mark"]) for check in checks] == [
        ("python", "ok"),
        ("settings", "ok"),
        ("database", "ok"),
        ("operation", "ok"),
        # The server of the tests does not wait for its disk.
        ("durability", "warning"),
        ("schema", "ok"),
        ("mirrors", "ok"),
        ("search", "ok"),
        ("sql", "ok"),
        ("jobs", "ok"),
        ("model", "ok"),
        ("recordings", "ok"),
        ("agents", "ok"),
    ]
    assert "fsync or full_page_writes is off" in checks[4]["finding"]
    assert checks[7]["finding"] == "0 passages, none embedded yet; answers ordered by rem-read-1 and rem-replace-2"
    assert re.fullmatch(r"\d+ migrations?, all applied; texts are not encrypted", checks[5]["finding"])
    broken = rem(
        "doctor",
        settings={
            "POSTGRES__CONNECTION_STRING": "postgresql://nobody@127.0.0.1:1/x",
            "POSTGRES__CONNECT_TIMEOUT_SECONDS": "1",
        },
    )
    assert broken.returncode == 1
    assert "PROBLEM" in broken.stdout


def test_doctor_names_the_config_file_and_ignored_variables(home: dict[str, str], tmp_path: Path) -> None:
    assert "no config file" in run_doctor(home)["settings"][1]
    (tmp_path / "config.yaml").write_text("memory: {enabled: false}\n", encoding="utf-8")
    mark, finding = run_doctor({**home, "SERVER__PORT": "1"})["settings"]
    assert mark == "ok"
    assert f"settings of {tmp_path / 'config.yaml'}" in finding
    assert "chat stores nothing" in finding
    assert "no such group of settings: SERVER__PORT" in finding


def test_doctor_refuses_an_unknown_search_language(dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "SEARCH__LANGUAGE": "klingon"}
    mark, finding = run_doctor(settings)["search"]
    assert mark == "problem"
    assert finding.startswith("SEARCH__LANGUAGE: the database has no text search configuration klingon.")
    assert "german" in finding


def test_doctor_compares_pools_with_the_connections_of_the_server(dsn: str, tmp_path: Path) -> None:
    settings = {"REM_HOME": str(tmp_path), "POSTGRES__CONNECTION_STRING": dsn, "API__WORKERS": "2"}
    mark, finding = run_doctor(settings)["operation"]
    assert mark == "ok"
    assert "clocks agree" in finding
    # Two processes, each with 10 connections in the pool, 4 for SQL, and 2 others.
    assert "one `rem serve` may open 32" in finding
    mark, finding = run_doctor({**settings, "POSTGRES__POOL_MAX_SIZE": "100", "API__WORKERS": "9"})["operation"]
    assert mark == "problem"
    assert "lower POSTGRES__POOL_MAX_SIZE or API__WORKERS" in finding


def test_clocks_differ_only_beyond_the_time_of_the_question() -> None:
    before = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    after = before + timedelta(seconds=3)
    for clock_seconds, skew in ((-10, 10), (0, 0), (2, 0), (63, 60)):
        assert measure_clock_skew(before, before + timedelta(seconds=clock_seconds), after) == skew


def test_doctor_names_pending_migrations(dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    output("db", "rollback", "--yes", settings=settings)
    mark, finding = run_doctor(settings)["schema"]
    assert mark == "problem"
    assert f"run `rem db migrate` (pending are {builtin_migrations()[-1].name}" in finding
    output("db", "migrate", settings=settings)
    assert run_doctor(settings)["schema"][0] == "ok"


def test_doctor_names_partitions_without_statistics(empty_dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": empty_dsn}
    output("db", "migrate", "--partitions", "2", settings=settings)
    assert run_doctor(settings)["schema"][1].endswith("2 partitions")
    output("remember", "The ferry leaves at nine.", "--user", "alice@example.com", settings=settings)
    asyncio.run(_execute(empty_dsn, "ANALYZE rem_partitions.resources_0, rem_partitions.resources_1"))
    mark, finding = run_doctor(settings)["schema"]
    assert (mark, "are old or missing: run ANALYZE" in finding) == ("warning", True), finding
    asyncio.run(_execute(empty_dsn, "ANALYZE"))
    assert run_doctor(settings)["schema"][0] == "ok"


def test_doctor_names_jobs_that_nobody_runs(dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    assert run_doctor(settings)["jobs"] == ("ok", "0 queued, 0 running, 0 dead")
    asyncio.run(_execute(dsn, JOBS_WITHOUT_WORKER))
    mark, finding = run_doctor(settings)["jobs"]
    assert mark == "warning"
    assert "2 queued, 1 running, 0 dead; the oldest has waited for 20 minutes: start `rem worker`" in finding
    assert "1 running without a heartbeat" in finding


def test_doctor_tells_the_space_of_the_embedded_server(home: dict[str, str], tmp_path: Path) -> None:
    settings = {"REM_HOME": str(tmp_path / "embedded")}
    try:
        mark, finding = run_doctor(settings)["disk"]
    finally:
        output("db", "stop", settings=settings)
    assert mark in ("ok", "warning")
    assert re.match(r"the database has [\d.]+ MB, [\d.]+ [MGT]B of the disk are free", finding)


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(statement)
    await connection.close()
