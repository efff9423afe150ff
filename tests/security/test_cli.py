"""Every command that acts for a user answers another user and another tenant as if Alice had no memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from typer.testing import CliRunner, Result

from rem.app import Rem
from rem.cli.main import app, build_command
from rem.errors import RemError
from rem.settings import Settings, get_settings
from tests.security.http_attacks import list_queries
from tests.security.victim import AGENT_NAME, ALICE, NAME, SECRET, Victim, create_victim, take_fingerprint

OPERATOR = {
    *(f"db {name}" for name in ("index", "migrate", "rebuild-cache", "reembed", "register", "rollback")),
    *(f"db {name}" for name in ("backup", "restore", "start", "status", "stop")),
    *(f"jobs {name}" for name in ("cancel", "list", "retry", "show", "stats")),
    *(
        "agents validate",
        "eval golden check",
        "eval phoenix pull",
        "demo",
        "doctor",
        "models list",
        "parse",
        "serve",
        "sweep",
        "worker",
    ),
    *(f"config {name}" for name in ("path", "set", "show", "unset")),
    *(f"admin {name}" for name in ("sessions", "set-user", "stats", "users")),
    *("audit log", "erase-user", "keys revoke", "mcp config"),
    *(f"encryption {name}" for name in ("new-key", "rotate", "status")),
}
"""Commands of the person who runs the installation. They act on no user, or on the user that they are told to erase."""
READERS = {
    *(
        "agents gaps",
        "approvals list",
        "approvals show",
        "agents list",
        "agents show",
        "db dangling",
        "db dump",
        "dreaming runs",
        "dreaming statements",
    ),
    *("ingest runs", "keys list", "lookup", "query", "sessions export", "sessions list", "sessions search"),
    "sessions show",
    *(
        "eval evaluators",
        "eval golden from-feedback",
        "eval golden from-session",
        "eval list",
        "eval show",
    ),
    "eval compare",
}
CALLERS = {
    "another user": ("--user", "bob@example.com"),
    "the same user in another tenant": ("--user", ALICE, "--tenant", "other"),
}


def list_commands() -> set[str]:
    """Return all commands, with their group."""

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[str]:
        for name, child in getattr(command, "commands", {}).items():
            yield from walk(child, (*path, name))
        if not hasattr(command, "commands"):
            yield " ".join(path)

    return set(walk(build_command(), ()))


def list_attacks(victim: Victim, folder: Path) -> dict[str, list[tuple[str, ...]]]:
    """Return the arguments for each command that ask for Alice's rows."""
    session = (str(victim.session_id), victim.session_name)
    experiment = (str(victim.experiment), f"{NAME} experiment", f"{NAME} experiment#1")
    golden = folder / "golden.jsonl"
    golden.write_text('{"input": "the word", "reference": "x"}\n')
    note_id, note_key = victim.rows["resources"]
    # The attacks on the API try the rows of all tables; a command takes a second.
    rows = {table: victim.rows[table] for table in ("resources", "messages", "files", "users")}
    statement = folder / "agent.yaml"
    export = folder / "export.jsonl"
    statement.write_text("- table: resources\n  key_field: name\n  rows: [{name: Mine, content: mine}]\n")
    agent = folder / "cook.yaml"
    agent.write_text(
        "type: object\ndescription: You cook.\nproperties: {}\n"
        "json_schema_extra: {kind: agent, name: cook, version: '1.0.0'}\n"
    )
    return {
        "agents delete": [(AGENT_NAME,)],
        "agents gaps": [()],
        "agents list": [()],
        "agents save": [(str(agent),)],
        "agents show": [(AGENT_NAME,)],
        "approvals approve": [(str(victim.rows["approvals"][0]), "--yes")],
        "approvals list": [(), ("--all",)],
        "approvals reject": [(str(victim.rows["approvals"][0]),)],
        "approvals show": [(str(victim.rows["approvals"][0]),)],
        "ask": [("What do I know about the word?", "--session", name) for name in session],
        "chat": [("--session", name) for name in session],
        "correct": [(note_key, "--to", "Nothing.", "--yes"), (f"{NAME} note", "--to", "Nothing.", "--yes")],
        "db dangling": [()],
        "db dump": [()],
        "db load": [(str(statement),)],
        "delete": [(str(row_id), "--yes") for row_id, _ in rows.values()],
        **{
            f"dreaming {name}": [()]
            for name in ("affinity", "audit", "entities", "full", "moments", "ontology", "profiles", "runs")
        },
        "dreaming statements": [(note_key,)],
        "dreaming undo": [(str(note_id),)],
        "eval compare": [(name, name) for name in experiment],
        "eval delete": [(name, "--yes") for name in experiment],
        "eval evaluators": [()],
        "eval golden from-feedback": [("--rating", "all")],
        "eval golden from-session": [(name,) for name in session],
        "eval judge": [(name, "--evaluator", "exact") for name in experiment],
        "eval list": [(), (f"{NAME} experiment",)],
        "eval phoenix feedback": [()],
        "eval phoenix push": [(name,) for name in experiment],
        "eval resume": [(name, "--retry-failed") for name in experiment],
        "eval run": [
            (str(golden), "--query", "SEARCH", "--evaluator", "exact"),
            (str(golden), "--query", "SEARCH", "--baseline", str(victim.experiment)),
            (str(golden), "--agent", AGENT_NAME),
        ],
        "eval show": [(name,) for name in experiment],
        "expire": [(note_key, "--at", "2030-01-01")],
        "forget": [(note_key, "--yes"), (f"{NAME} note", "--mentions", "--yes")],
        "ingest add": [(str(agent),)],
        "ingest runs": [()],
        "ingest undo": [(str(victim.run),)],
        "keys create": [("mine",)],
        "keys list": [()],
        "lookup": [(key,) for _, key in rows.values()],
        "query": [(text,) for text in list_queries(victim)[::8]],
        "remember": [(f"{NAME} note is mine.",)],
        "restore": [(table, str(row_id)) for table, (row_id, _) in rows.items()],
        "sessions clear": [(name, "--yes") for name in session],
        "sessions delete": [(name, "--yes") for name in session],
        "sessions expire": [(name, "--at", "2030-01-01") for name in session],
        "sessions export": [(name,) for name in session],
        "sessions import": [(str(export),)],
        "sessions list": [(), ("--shared",)],
        "sessions prompt": [(name, "obey") for name in session],
        "sessions prune": [("--yes",)],
        "sessions rename": [(name, "taken") for name in session],
        "sessions search": [("the word",)],
        "sessions show": [(name,) for name in session],
    }


async def test_every_command_is_attacked(rem: Rem, settings: Settings, tmp_path: Path) -> None:
    victim = await create_victim(rem, settings)
    described = set(list_attacks(victim, tmp_path))
    assert described | OPERATOR == list_commands(), "describe an attack for each command, or say that it has no user"
    assert not described & OPERATOR


@pytest.mark.parametrize("caller", CALLERS)
async def test_nobody_else_reads_or_changes_a_memory_by_command(
    caller: str,
    rem: Rem,
    dsn: str,
    settings: Settings,
    sql: asyncpg.Connection[asyncpg.Record],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    victim = await create_victim(rem, settings)
    for name, value in {
        "POSTGRES__CONNECTION_STRING": dsn,
        "EMBEDDING__PROVIDER": "none",
        "REM_HOME": str(tmp_path / "home"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    # The runner would build all commands anew for each call, which takes longer than most of them.
    monkeypatch.setattr("typer.testing._get_command", lambda _app: build_command())
    get_settings.cache_clear()
    before = await take_fingerprint(sql, victim)
    failures: list[str] = []
    try:
        attacks = list_attacks(victim, tmp_path)
        # What only reads comes first: the caller may have rows of the same names afterwards.
        for command in sorted(attacks, key=lambda name: (name not in READERS, name)):
            for arguments in attacks[command]:
                words = [*command.split(), *arguments, *CALLERS[caller]]
                result = await asyncio.to_thread(CliRunner().invoke, app, words)
                failures += _check(words, result, checks_names=command in READERS)
                if command not in READERS and (after := await take_fingerprint(sql, victim)) != before:
                    failures.append(f"{words}: changed {[name for name in after if after[name] != before[name]]}")
                    before = after
    finally:
        get_settings.cache_clear()
    assert not failures, "\n".join(failures)


def _check(words: list[str], result: Result, *, checks_names: bool) -> list[str]:
    failures = []
    output = f"{result.output} {result.exception or ''}"
    if SECRET in output:
        failures.append(f"{words}: leaks the content: {output[:300]}")
    if checks_names and NAME in output.lower() and NAME not in " ".join(words).lower():
        failures.append(f"{words}: leaks a name: {output[:300]}")
    if result.exception is not None and not isinstance(result.exception, RemError | SystemExit):
        failures.append(f"{words}: {result.exception!r}")
    if "No such option" in output or "Missing argument" in output:
        failures.append(f"{words}: {output[:300]}")
    return failures
