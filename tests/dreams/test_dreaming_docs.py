"""The commands and examples of docs/dreaming.md work."""

from __future__ import annotations

import re
import shlex

import orjson

from rem.db.store import Store
from rem.dreams.registry import DREAMS
from tests.dreams.sample_sessions import store_session
from tests.rem_command import REPOSITORY, output, run_python
from tests.rem_command import rem as run_rem

_PAGE = (REPOSITORY / "docs" / "dreaming.md").read_text(encoding="utf-8")
_EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```\w+\n(.*?)```", _PAGE, re.DOTALL))
_ALICE = ("--user", "alice@example.com")


def _store_sessions(dsn: str) -> dict[str, str]:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    done = run_python(_EXAMPLES["talk"], settings=settings)
    assert done.returncode == 0, done.stderr
    return settings


def test_documented_example_works(dsn: str) -> None:
    settings = _store_sessions(dsn)
    commands = [shlex.split(line)[1:] for line in _EXAMPLES["dream"].splitlines()]
    full, moments, person, mentions, statements, runs, audit = (
        output(*command, settings=settings) for command in commands
    )
    assert "Learnt:" in full
    assert re.search(r"moments \d+ new", full)
    assert moments.count("2026-03") >= 2
    assert "Postgres" in moments
    assert "nadia-petrova" in person
    assert "billing" in mentions
    assert "nadia-petrova" in statements
    assert "done" in runs
    assert re.findall(r": (\d+)$", audit, re.MULTILINE) == ["0"] * 7


def test_profile_is_found_by_email_address(dsn: str) -> None:
    settings = _store_sessions(dsn)
    output("dreaming", "full", *_ALICE, settings=settings)
    found = orjson.loads(output("lookup", "alice@example.com", "--json", *_ALICE, settings=settings))
    assert "postgres" in orjson.dumps(found).decode().lower()


def test_statements_are_printed_once_with_row_and_value(dsn: str) -> None:
    settings = _store_sessions(dsn)
    output("dreaming", "full", *_ALICE, settings=settings)
    shown = output("dreaming", "statements", *_ALICE, settings=settings).splitlines()
    records = orjson.loads(output("dreaming", "statements", "--json", *_ALICE, settings=settings))
    for record in records:
        about = f"[{'evidence' if record['is_evidence'] else record['state']}] {record['entity_type']}/{record['key']}"
        assert any(line.removeprefix(about).strip(": ") for line in shown[::2] if line.startswith(about)), about
    assert len(set(shown[::2])) == len(shown[::2]) < len(records), "a statement of several sources is shown once"
    assert any(re.match(r"\[live\] sessions/\S+ mentions ontologies/nadia-petrova$", line) for line in shown)


async def test_statement_without_row_is_printed_as_evidence(alice: Store, dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    first = await store_session(alice, "One", "user: amara.diallo@web.de will call.")
    output("dreaming", "entities", *_ALICE, settings=settings)
    (record,) = orjson.loads(output("dreaming", "statements", "--json", *_ALICE, settings=settings))
    assert (record["state"], record["is_evidence"]) == ("live", True)
    shown = output("dreaming", "statements", *_ALICE, settings=settings)
    assert shown.startswith("[evidence] ontologies/amara-diallo"), shown
    second = await store_session(alice, "Two", "user: amara.diallo@web.de will call.")
    output("dreaming", "entities", *_ALICE, settings=settings)
    shown = output("dreaming", "statements", "amara-diallo", *_ALICE, settings=settings)
    assert shown.count("[live] ontologies/amara-diallo") == 1, shown
    assert all(f"session-{session}-msg-0" in shown for session in (first, second))
    assert "[evidence]" not in shown


def test_second_run_reports_nothing_new(dsn: str) -> None:
    settings = _store_sessions(dsn)
    (first,) = orjson.loads(output("dreaming", "full", "--json", *_ALICE, settings=settings))
    (second,) = orjson.loads(output("dreaming", "full", "--json", *_ALICE, settings=settings))
    assert first["run_id"] is not None
    assert second["run_id"] is None
    assert output("dreaming", "full", *_ALICE, settings=settings) == "alice@example.com: nothing new.\n"


def test_run_is_undone_by_its_id(dsn: str) -> None:
    settings = _store_sessions(dsn)
    (report,) = orjson.loads(output("dreaming", "moments", "--json", *_ALICE, settings=settings))
    assert "Deleted" in output("dreaming", "undo", report["run_id"], *_ALICE, settings=settings)
    query = "SQL SELECT count(*) AS moments FROM moments"
    (row,) = orjson.loads(output("query", query, "--json", *_ALICE, settings=settings))["results"]
    assert row["moments"] == 0
    refused = run_rem("dreaming", "undo", report["run_id"], *_ALICE, settings=settings)
    assert "undone already" in refused.stderr


def test_all_option_dreams_for_each_user_separately(dsn: str) -> None:
    settings = _store_sessions(dsn)
    reports = orjson.loads(output("dreaming", "full", "--all", "--json", settings=settings))
    assert len([report for report in reports if report["run_id"]]) == 1
    assert orjson.loads(output("dreaming", "statements", "--json", "--user", "bob", settings=settings)) == []
    both = run_rem("dreaming", "full", "--all", *_ALICE, settings=settings)
    assert "leave --user out" in both.stderr


def test_documented_table_lists_all_dreams() -> None:
    assert re.findall(r"^\| `([a-z]+)` \|", _PAGE, re.MULTILINE) == list(DREAMS)
