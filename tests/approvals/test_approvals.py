"""A request for approval is decided once, by its owner, in time; an approved action runs at most once."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.approvals.approvals import MAX_PENDING, Origin, Proposal, drop_stale_requests
from rem.errors import ConflictError, InvalidInputError, NotFoundError, RemError
from rem.models import Approval, RiskLevel
from tests.cases import cases

_ALICE, _BOB = "alice@example.com", "bob@example.com"


def propose(risk: RiskLevel = RiskLevel.IRREVERSIBLE, **parameters: str) -> Proposal:
    return Proposal("remember", parameters or {"text": "Marta likes tea."}, "Keep a statement.", "Keep it?", risk)


async def ask(rem: Rem, user: str = _ALICE, run: str | None = None) -> Approval:
    return await rem.for_user(user).approvals.request(propose(), Origin(uuid4(), "rem", run))


@pytest.mark.parametrize(
    ("risk", "seconds"),
    [(RiskLevel.REVERSIBLE_WITH_DELAY, 300), (RiskLevel.IRREVERSIBLE, 900), (RiskLevel.REVERSIBLE, 900)],
)
async def test_a_request_has_all_fields(rem: Rem, risk: RiskLevel, seconds: int) -> None:
    approval = await rem.for_user(_ALICE).approvals.request(propose(risk), Origin(None, "rem", "{}"))
    assert (approval.action_type, approval.tool_name) == ("remember", "remember")
    assert (approval.risk_level, approval.timeout_seconds, approval.confidence) == (risk, seconds, 0.5)
    assert (approval.requires_immediate_approval, approval.status, approval.execution) == (True, "pending", None)
    assert approval.decide_by is not None
    assert round((approval.decide_by - approval.created_at).total_seconds()) == seconds
    assert approval.parameters == {"text": "Marta likes tea."}
    assert str(approval.id).startswith(approval.code)
    assert not (await rem.for_user(_ALICE).approvals.request(propose())).requires_immediate_approval


@cases(
    "change",
    [
        "action_type = ''",
        "confidence = 1.1",
        "confidence = NULL",
        "risk_level = 'harmless'",
        "timeout_seconds = 0",
        "status = 'maybe'",
        "execution = 'done'",
        "parameters = '[]'",
    ],
)
async def test_the_database_refuses_a_wrong_request(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record], change: str
) -> None:
    await ask(rem)
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        await sql.execute(f"UPDATE rem.approvals SET {change}")


async def test_only_the_owner_finds_and_decides(rem: Rem) -> None:
    approval = await ask(rem, run="{}")
    for other in (
        rem.for_user(_BOB).approvals,
        rem.for_user().approvals,
        rem.for_user(_ALICE, tenant="another").approvals,
    ):
        for reference in (approval.id, str(approval.id), approval.code):
            with pytest.raises(NotFoundError):
                await other.get(reference)
        with pytest.raises(NotFoundError):
            await other.approve(approval, by="thief")
        with pytest.raises(NotFoundError):
            await other.reject(approval, by="thief")
        with pytest.raises(ConflictError):
            async with other.executing(approval.id):
                pytest.fail("it ran")
        assert await other.load_run(approval) is None
        assert list(await other.list()) == []
    assert (await rem.for_user(_ALICE).approvals.get(approval.code)).status == "pending"
    assert await rem.for_user(_ALICE).approvals.load_run(approval) == "{}"


async def test_a_request_is_found_by_the_beginning_of_its_id(rem: Rem) -> None:
    approval = await ask(rem)
    approvals = rem.for_user(_ALICE).approvals
    for reference in (approval.code.upper(), str(approval.id)[:13], str(approval.id)):
        assert (await approvals.get(reference)).id == approval.id
    for reference in ("", approval.code[:5], "zzzzzz"):
        with pytest.raises(NotFoundError, match="Nothing waits"):
            await approvals.get(reference)


async def test_two_decisions_at_once_make_one(rem: Rem) -> None:
    approval = await ask(rem, run="{}")
    ran: list[int] = []

    async def approve_and_run(number: int) -> RemError | None:
        approvals = rem.for_user(_ALICE).approvals
        try:
            await approvals.approve(approval, by="test")
            async with approvals.executing(approval.id):
                await asyncio.sleep(0.01)
                ran.append(number)
        except RemError as error:
            return error
        return None

    results = await asyncio.gather(*(approve_and_run(number) for number in range(8)))
    assert len(ran) == 1
    assert sum(isinstance(result, ConflictError) for result in results) == 7
    done = await rem.for_user(_ALICE).approvals.get(approval.id)
    assert (done.status, done.execution, done.parameters) == ("approved", "done", {})
    assert await rem.for_user(_ALICE).approvals.load_run(approval) is None
    for late in (
        rem.for_user(_ALICE).approvals.approve(approval, by="x"),
        rem.for_user(_ALICE).approvals.reject(approval, by="x"),
    ):
        with pytest.raises(ConflictError, match="approved before"):
            await late


async def test_a_rejected_request_stays_rejected(rem: Rem) -> None:
    approval, approvals = await ask(rem, run="{}"), rem.for_user(_ALICE).approvals
    await approvals.reject(approval, by="test", reason="Not now.")
    with pytest.raises(ConflictError, match="rejected before"):
        await approvals.approve(approval, by="test")
    with pytest.raises(ConflictError):
        async with approvals.executing(approval.id):
            pytest.fail("it ran")
    stored = await approvals.get(approval.id)
    assert (stored.status, stored.outcome, stored.parameters) == ("rejected", "Not now.", {})


async def test_a_late_decision_is_refused_and_a_sweep_ends_it(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    approvals = rem.for_user(_ALICE).approvals
    late, forgotten, endless = await ask(rem), await ask(rem, run="{}"), await ask(rem)
    await sql.execute("UPDATE rem.approvals SET decide_by = now() - interval '1 s' WHERE id <> $1", endless.id)
    await sql.execute("UPDATE rem.approvals SET decide_by = NULL, timeout_seconds = NULL WHERE id = $1", endless.id)
    assert [row.id for row in await approvals.find_pending()] == [endless.id]
    with pytest.raises(ConflictError, match="time to decide was over"):
        await approvals.approve(late, by="test")
    assert (await approvals.get(late.id)).status == "expired"
    assert (await rem.sweep()).overdue == 1
    expired = await approvals.get(forgotten.id)
    assert (expired.status, expired.decided_by, expired.parameters) == ("expired", None, {})
    assert "nothing was done" in str(expired.outcome)
    assert await sql.fetchval("SELECT count(*) FROM rem.approval_runs") == 0
    with pytest.raises(ConflictError, match="time to decide is over"):
        await approvals.approve(forgotten, by="test")
    assert (await approvals.get(endless.id)).status == "pending"


async def test_an_action_that_never_reported_its_end_is_not_repeated(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    approval, approvals = await ask(rem), rem.for_user(_ALICE).approvals
    await approvals.approve(approval, by="test")
    # A process dies inside of the action.
    await sql.execute("UPDATE rem.approvals SET execution = 'running', executed_at = now() - interval '2 h'")
    with pytest.raises(ConflictError, match="only once"):
        await approvals.approve(approval, by="test")
    assert await drop_stale_requests(rem.database) == 1
    stored = await approvals.get(approval.id)
    assert (stored.execution, "does not repeat it" in str(stored.outcome)) == ("unknown", True)
    with pytest.raises(ConflictError):
        async with approvals.executing(approval.id):
            pytest.fail("it ran again")


async def test_an_approved_action_that_has_not_begun_can_go_on(rem: Rem) -> None:
    approval, approvals = await ask(rem, run="{}"), rem.for_user(_ALICE).approvals
    await approvals.approve(approval, by="test", parameters={"text": "Edited."})
    # The process died before it began.
    await approvals.approve(approval, by="test")
    assert (await approvals.get(approval.id)).parameters == {"text": "Edited."}
    async with approvals.executing(approval.id):
        pass
    assert (await approvals.get(approval.id)).execution == "done"


async def test_a_failed_or_interrupted_action_is_recorded(rem: Rem) -> None:
    approvals = rem.for_user(_ALICE).approvals
    for error, execution in ((ValueError("words of the user"), "failed"), (asyncio.CancelledError(), "unknown")):
        approval = await ask(rem)
        await approvals.approve(approval, by="test")
        with pytest.raises(type(error)):
            async with approvals.executing(approval.id):
                raise error
        stored = await approvals.get(approval.id)
        assert stored.execution == execution
        assert "words of the user" not in str(stored.outcome)


async def test_requests_are_limited_and_storable(rem: Rem) -> None:
    approvals = rem.for_user(_ALICE).approvals
    with pytest.raises(InvalidInputError, match="cannot be stored"):
        await approvals.request(propose(text="a\x00b"))
    for _ in range(MAX_PENDING):
        await ask(rem)
    with pytest.raises(ConflictError, match="already wait"):
        await ask(rem)
    await ask(rem, _BOB)
