"""At 80 columns, no key and no word is broken, and nothing is cut silently."""

from __future__ import annotations

import json

import pytest

from tests.rem_command import output, rem

_LONG = "The quick reconciliation of the quarterly ledger with the supplier invoices takes place every second Thursday."


@pytest.fixture
def env(dsn: str) -> dict[str, str]:
    return {"POSTGRES__CONNECTION_STRING": dsn, "COLUMNS": "80", "EMBEDDING__PROVIDER": "none", "REM_USER": "zoe"}


@pytest.mark.parametrize(
    "query",
    [
        'SEARCH "ledger"',
        'FUZZY "quick reconciliation of the quarterly"',
        'TRAVERSE FROM "start" DEPTH 1',
        "LOOKUP start",
    ],
)
def test_rows_keep_their_keys_and_words(env: dict[str, str], query: str) -> None:
    key = output("remember", _LONG, settings=env).strip()
    rows = [{"name": "Start", "graph_edges": [{"dst": key, "rel_type": "a_relation_with_a_long_name"}]}]
    yaml = json.dumps(
        [{"table": "resources", "key_field": "name", "rows": [{**row, "content": _LONG} for row in rows]}]
    )
    assert rem("db", "load", "/dev/stdin", settings=env, stdin=yaml).returncode == 0
    text = output("query", query, settings=env)
    assert (key if "start" not in query or "TRAVERSE" in query else "start") in text
    printed = " ".join(text.split())
    if "TRAVERSE" in query:
        assert f"start → {key}" in printed or f"→ {key}" in printed
        assert "a_relation_with_a_long_name" in text
    else:
        assert _LONG in printed or "Thursday" in printed


def test_a_cut_and_a_wrong_time_are_said(env: dict[str, str]) -> None:
    for number in range(4):
        output("remember", f"Marta Kowalczyk moved to Leeds, number {number}.", settings=env)
    output("dreaming", "moments", settings=env)
    cut = rem("dreaming", "statements", "--limit", "1", settings=env)
    assert "more statements: use --limit" in cut.stderr
    wrong = rem("dreaming", "statements", "--at", "yesterday", settings=env)
    assert wrong.returncode == 2
    assert "Value error" not in wrong.stderr
    assert "'yesterday' is not a date" in wrong.stderr


def test_name_conflict_is_in_plain_words(env: dict[str, str]) -> None:
    for session in ("one", "two"):
        output("ask", "hello", "--session", session, settings=env)
    refused = rem("sessions", "rename", "two", "one", settings=env)
    assert "already has this key: one." in refused.stderr
    assert "tenant_id" not in refused.stderr
