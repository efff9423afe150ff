"""The audit log: batches, order, filters, append-only rows, pruning, and what remains of an erased user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TypeAlias
from uuid import uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.audit.entry import MAX_TARGETS, Action, AuditEntry, audit_scope, note_action, note_results, note_row, note_tool
from rem.audit.log import AuditFilter, AuditLog
from rem.context import resolve_user_id
from rem.models import Resource
from rem.models.results import Hit, Result
from rem.settings import AuditSettings, Settings

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
ALICE = str(resolve_user_id("alice@example.com"))


@pytest.fixture
async def audited_rem(settings: Settings) -> AsyncIterator[Rem]:
    """Open a REM that writes the audit log."""
    async with Rem.open(settings.model_copy(update={"audit": AuditSettings(enabled=True)})) as rem:
        yield rem


@pytest.fixture
def log(audited_rem: Rem) -> AuditLog:
    """Return the audit log."""
    return audited_rem.audit_log


async def test_batches_are_written_and_none_is_lost_at_a_stop(log: AuditLog, sql: Connection) -> None:
    async with log.writing():
        for number in range(2500):
            log.add(AuditEntry(Action.READ, f"GET /{number}", actor=ALICE))
        await asyncio.sleep(0)
    assert await sql.fetchval("SELECT count(*) FROM rem.audit_log") == 2500


async def test_background_writer_writes_by_itself(log: AuditLog, sql: Connection) -> None:
    async with log.writing():
        log.add(AuditEntry(Action.READ, "GET /"))
        async with asyncio.timeout(20):
            while not await sql.fetchval("SELECT count(*) FROM rem.audit_log"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await sql.fetchval("SELECT action FROM rem.audit_log") == Action.READ


async def test_entries_are_filtered_and_newest_first(log: AuditLog) -> None:
    row_id, now = uuid4(), datetime.now(UTC)
    for hours, actor, action in ((3, ALICE, Action.READ), (2, "bob", Action.DELETE), (1, ALICE, Action.DELETE)):
        entry = AuditEntry(action, "test", actor=actor, at=now - timedelta(hours=hours))
        entry.add_target("resources", row_id if actor == ALICE else uuid4())
        await log.record(entry)
    await log.record(AuditEntry(Action.ADMIN, "test", tenant_id="other", actor=ALICE))

    async def find(**wanted: object) -> list[tuple[str, str]]:
        entries = await log.find("default", AuditFilter(**wanted))  # type: ignore[arg-type]
        return [(entry["actor"], entry["action"]) for entry in entries]

    assert await find() == [(ALICE, "delete"), ("bob", "delete"), (ALICE, "read")]
    assert await find(actor=ALICE) == [(ALICE, "delete"), (ALICE, "read")]
    assert await find(action="delete", actor="bob") == [("bob", "delete")]
    assert await find(table="resources", row_id=row_id) == [(ALICE, "delete"), (ALICE, "read")]
    assert await find(table="users") == []
    assert await find(since=now - timedelta(hours=1.5)) == [(ALICE, "delete")]
    assert await find(until=now - timedelta(hours=2.5)) == [(ALICE, "read")]
    assert len(await log.find("default", AuditFilter(), limit=1, offset=1)) == 1


@pytest.mark.parametrize(
    "statement",
    ["UPDATE rem.audit_log SET actor = 'x'", "DELETE FROM rem.audit_log", "TRUNCATE rem.audit_log"],
)
async def test_entries_cannot_be_changed(log: AuditLog, sql: Connection, statement: str) -> None:
    await log.record(AuditEntry(Action.READ, "test"))
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
        await sql.execute(statement)
    assert await sql.fetchval("SELECT count(*) FROM rem.audit_log") == 1


async def test_sweep_prunes_old_entries(audited_rem: Rem) -> None:
    log = audited_rem.audit_log
    for days in (400, 366, 364):
        await log.record(AuditEntry(Action.READ, f"{days}", at=datetime.now(UTC) - timedelta(days=days)))
    assert (await audited_rem.sweep()).audit_entries == 2
    assert [entry["operation"] for entry in await log.find("default", AuditFilter())] == ["364"]
    assert (await audited_rem.sweep()).audit_entries == 0


async def test_erased_user_remains_as_a_pseudonym(audited_rem: Rem, sql: Connection) -> None:
    log = audited_rem.audit_log
    await audited_rem.for_user("alice@example.com").store.upsert(Resource(name="Plan", content="x"))
    read = AuditEntry(Action.READ, "GET /x", actor=ALICE, credential_id="k1", client="192.0.2.1", request_id="r1")
    read.add_target("resources", uuid4())
    await log.record(read)
    await log.record(AuditEntry(Action.ADMIN, "PATCH /admin", actor="root", subject=ALICE, client="192.0.2.2"))
    await log.record(AuditEntry(Action.READ, "GET /y", actor="bob"))
    await audited_rem.for_user("alice@example.com").erase_user()
    erasure, bobs, changed, was_read = await log.find("default", AuditFilter())
    pseudonym = was_read["actor"]
    assert pseudonym.startswith("erased:")
    assert (was_read["credential_id"], was_read["client"], was_read["request_id"]) == (None, None, None)
    assert was_read["targets"] == read.targets
    assert (changed["actor"], changed["subject"], changed["client"]) == ("root", pseudonym, "192.0.2.2")
    assert (erasure["operation"], erasure["action"], erasure["subject"]) == ("erase_user", "delete", pseudonym)
    assert bobs["actor"] == "bob"
    statement = "SELECT count(*) FROM rem.audit_log l WHERE strpos(to_json(l)::text, $1) > 0"
    assert await sql.fetchval(statement, ALICE) == 0


async def test_forget_is_recorded_in_its_transaction(audited_rem: Rem) -> None:
    row = await audited_rem.for_user("alice@example.com").store.upsert(Resource(name="Sarah Chen", content="x"))
    plan = await audited_rem.for_user("alice@example.com").plan_forget("Sarah Chen")
    await audited_rem.for_user(plan.scope).forget(plan)
    (entry,) = await audited_rem.audit_log.find("default", AuditFilter())
    assert (entry["action"], entry["operation"]) == ("delete", "forget")
    assert entry["targets"] == [{"table": "resources", "id": str(row.id)}]


async def test_log_that_is_off_writes_nothing(rem: Rem, sql: Connection) -> None:
    async with rem.audit_log.writing():
        rem.audit_log.add(AuditEntry(Action.READ, "GET /"))
        await rem.audit_log.record(AuditEntry(Action.READ, "GET /"))
    assert await sql.fetchval("SELECT count(*) FROM rem.audit_log") == 0


async def test_failed_entry_is_written_later(audited_rem: Rem, sql: Connection) -> None:
    log = audited_rem.audit_log
    await sql.execute("ALTER TABLE rem.audit_log RENAME TO hidden")
    await log.record(AuditEntry(Action.DELETE, "DELETE /x"))
    await sql.execute("ALTER TABLE rem.hidden RENAME TO audit_log")
    await log.flush()
    assert await sql.fetchval("SELECT count(*) FROM rem.audit_log") == 1


def test_notes_go_to_the_current_entry_and_have_no_keys() -> None:
    row_id = uuid4()
    note_row("users", row_id)
    with audit_scope(AuditEntry(Action.READ, "POST /api/v1/query")) as entry:
        note_row("users", row_id)
        note_row("users", row_id)
        note_row("resources", "Secret Plan")
        note_results(Result("LOOKUP", [Hit("moments", "m", {"id": str(row_id)})], [{"count": 5}]))
        note_tool("remember", is_read_only=False)
        note_action(Action.READ)
    record = entry.as_record()
    assert record["action"] == "write"
    assert record["operation"] == "POST /api/v1/query LOOKUP,remember"
    assert [target["table"] for target in entry.targets] == ["users", "resources", "moments"]
    assert "Secret" not in str(record)


def test_targets_are_bounded() -> None:
    entry = AuditEntry(Action.READ, "GET /")
    for _ in range(MAX_TARGETS + 7):
        entry.add_target("users", uuid4())
    assert len(entry.targets) == MAX_TARGETS
    assert entry.as_record()["targets"][-1] == {"more": 7}
