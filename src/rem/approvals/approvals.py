"""Approvals: the requests of one owner that wait for a decision, and the record of what became of them.

Everything that a decision needs is in the database, so any process can make it, also after a restart. Status and
execution change only forwards, each by one statement that names the state before, so an action runs at most once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import ValidationError

from rem.audit.entry import Action, note_action, note_row
from rem.db.sql import query
from rem.encryption.sealed_values import Place
from rem.errors import ConflictError, InvalidInputError, NotFoundError
from rem.models import Approval, ApprovalStatus, Execution, RiskLevel
from rem.models.approval import CODE_CHARS

if TYPE_CHECKING:
    from rem.db.database import Connection, Database
    from rem.db.store import Store

TIMEOUTS: Mapping[RiskLevel, timedelta] = {
    RiskLevel.REVERSIBLE: timedelta(minutes=15),
    RiskLevel.REVERSIBLE_WITH_DELAY: timedelta(minutes=5),
    RiskLevel.IRREVERSIBLE: timedelta(minutes=15),
}
"""How long a request of a level can be decided."""
MAX_PENDING = 50
KEPT_DAYS = 30
"""How long the record of a request stays after its end."""
UNKNOWN_CONFIDENCE = 0.5
"""The confidence of an agent that noted none."""
EXPIRED_OUTCOME = "Nobody decided in time: nothing was done."
LOST_OUTCOME = "It began and did not report its end: check whether it took effect. REM does not repeat it."
NEVER_BEGUN_OUTCOME = "It was approved and never began: nothing was done."


class AlreadyBegunError(ConflictError):
    """This was carried out before, or is being carried out. It is done only once."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """An action that an agent proposes, as the user sees it."""

    tool_name: str
    parameters: Mapping[str, Any]
    """The arguments of the tool."""
    description: str
    """What the tool does, without words of the user: this stays when the request has ended."""
    preview: str
    """What exactly would be done, for the user to read."""
    risk_level: RiskLevel = RiskLevel.IRREVERSIBLE
    details: Mapping[str, Any] = field(default_factory=dict)
    """What is stored of the preview, to carry out exactly that."""
    rows: Sequence[Mapping[str, Any]] = ()
    """The numbered rows of the preview, of which the user may choose some."""
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a proposal comes from."""

    session_id: UUID | None = None
    """The session in which the user sees it."""
    agent: str | None = None
    run: str | None = None
    """The run that waits for the decision, as JSON."""


class Approvals:
    """The requests of one owner."""

    def __init__(self, database: Database, store: Store) -> None:
        self._database = database
        self._store = store

    async def request(self, proposal: Proposal, origin: Origin | None = None) -> Approval:
        """Store a proposal, so that the user can decide on it. Raise ConflictError if too many wait already."""
        origin = origin or Origin()
        if len(await self._find_pending_ids(None)) >= MAX_PENDING:
            raise ConflictError(
                f"{MAX_PENDING} requests already wait for a confirmation: confirm or reject some of them (`rem "
                "approvals list`), or wait until they expire."
            )
        try:
            approval = self._make(proposal, origin)
        except ValidationError as error:
            raise InvalidInputError(f"The arguments of {proposal.tool_name} cannot be stored: {error}") from error
        async with self._store.transaction() as store, store.executor.connection() as connection:
            stored = await store.upsert(approval)
            if origin.run is not None:
                run = self._seal(stored.id, origin.run)
                await connection.execute(query("approvals/approvals", "save_run"), *self._owner, stored.id, run)
        return stored

    def _seal(self, approval_id: UUID, run: str) -> str:
        sealer = self._store.executor.sealer
        return run if sealer is None else sealer.seal(run, Place(self._owner[0], approval_id, "state"))

    def _seal_parameters(self, approval_id: UUID, parameters: Mapping[str, Any]) -> Any:
        sealer = self._store.executor.sealer
        if sealer is None:
            return dict(parameters)
        return sealer.seal_json(dict(parameters), Place(self._owner[0], approval_id, "parameters"))

    def _make(self, proposal: Proposal, origin: Origin) -> Approval:
        timeout = TIMEOUTS[proposal.risk_level]
        return Approval(
            session_id=origin.session_id,
            agent=origin.agent,
            action_type=proposal.tool_name,
            action_description=proposal.description,
            confidence=UNKNOWN_CONFIDENCE if proposal.confidence is None else proposal.confidence,
            risk_level=proposal.risk_level,
            tool_name=proposal.tool_name,
            parameters=dict(proposal.parameters),
            proposal=dict(proposal.details),
            requires_immediate_approval=origin.run is not None,
            timeout_seconds=int(timeout.total_seconds()),
            decide_by=datetime.now(UTC) + timeout,
        )

    async def list(
        self, status: ApprovalStatus | None = None, *, limit: int = 100, offset: int = 0
    ) -> Sequence[Approval]:
        """Return the owner's requests, newest first; those with a status, if one is given."""
        where: dict[str, Any] = {"user_id": self._store.scope.user_id}
        if status is not None:
            where["status"] = status.value
        return await self._store.find(Approval, where, limit=limit, offset=offset)

    async def get(self, reference: str | UUID) -> Approval:
        """Return the request with an id, or the open one whose id begins so. Raise NotFoundError if there is none.

        A request of another owner is not found, either.
        """
        if isinstance(reference, UUID) or (parsed := _parse_id(reference)) is not None:
            wanted = reference if isinstance(reference, UUID) else parsed
            found = await self._store.find(Approval, {"id": wanted, "user_id": self._store.scope.user_id}, limit=1)
            if not found:
                raise NotFoundError(f"There is no request for approval {wanted}.")
            return found[0]
        return await self._get_by_code(reference)

    async def find_pending(self, session_id: UUID | None = None) -> Sequence[Approval]:
        """Return the requests that can be decided, latest first; those of a session, if one is given."""
        return [await self.get(request_id) for request_id in await self._find_pending_ids(session_id)]

    async def find_just_shown(self, session_id: UUID) -> Approval | None:
        """Return the session's latest open request, if the user has said nothing in the session since."""
        found = await self._find_pending_ids(session_id, can_resume=True)
        if not found:
            return None
        latest = await self.get(found[0])
        async with self._database.connection() as connection:
            statement = query("approvals/approvals", "has_later_message")
            is_stale = await connection.fetchval(statement, *self._owner, session_id, latest.created_at)
        return None if is_stale else latest

    async def load_run(self, approval: Approval) -> str | None:
        """Return the run that waits for a decision, as JSON; None if none does."""
        async with self._database.connection() as connection:
            state: str | None = await connection.fetchval(
                query("approvals/approvals", "load_run"), *self._owner, approval.id
            )
        return state

    async def require_open(self, approval: Approval) -> None:
        """Raise ConflictError, which says why, if a request cannot be decided any more. One whose time is over ends."""
        async with self._database.transaction() as inside, inside.connection() as connection:
            row = await self.lock(connection, approval.id)
            if row["status"] == ApprovalStatus.PENDING and row["is_overdue"]:
                await self.close(connection, approval.id, ApprovalStatus.EXPIRED, None, EXPIRED_OUTCOME)
        require_open(row, can_resume=True)

    async def approve(
        self, approval: Approval, *, by: str, parameters: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        """Record that the user approves, with edited arguments if they are given. Return the recorded arguments.

        Carry out only what this returns: `approval` may have been read before another process recorded its decision.
        A request that was approved and has not begun can be approved again, with the same arguments or none: the
        process that should have carried it out is gone. Raise ConflictError if it was decided otherwise, has begun, or
        if its time is over.
        """
        async with self._database.transaction() as inside, inside.connection() as connection:
            row = await self.lock(connection, approval.id)
            if row["status"] == ApprovalStatus.PENDING and row["is_overdue"]:
                await self.close(connection, approval.id, ApprovalStatus.EXPIRED, None, EXPIRED_OUTCOME)
            elif row["status"] == ApprovalStatus.PENDING:
                edited = None if parameters is None else self._seal_parameters(approval.id, parameters)
                await connection.execute(query("approvals/approvals", "approve"), *self._owner, approval.id, by, edited)
                _note_decision(approval.id)
        require_open(row, can_resume=True)
        recorded: Mapping[str, Any] = row["parameters"]
        if parameters is None or parameters == recorded:
            return recorded
        if row["status"] == ApprovalStatus.APPROVED:
            raise ConflictError("This was approved before, with other arguments. Those count: approve it without any.")
        return parameters

    async def reject(self, approval: Approval, *, by: str, reason: str | None = None) -> None:
        """Record that the user rejects. Raise ConflictError if the request was decided before or its time is over."""
        async with self._database.transaction() as inside, inside.connection() as connection:
            row = await self.lock(connection, approval.id)
            if row["status"] == ApprovalStatus.PENDING:
                end = (ApprovalStatus.EXPIRED, None, EXPIRED_OUTCOME) if row["is_overdue"] else None
                await self.close(connection, approval.id, *(end or (ApprovalStatus.REJECTED, by, reason)))
                _note_decision(approval.id)
        require_open(row)

    @asynccontextmanager
    async def executing(self, approval_id: UUID) -> AsyncIterator[None]:
        """Claim an approved action for the block, which carries it out, and record its end.

        Raise AlreadyBegunError if it has begun before. A process that dies inside of the block leaves it `running`;
        then nothing repeats it, because nobody knows how far it came.
        """
        async with self._database.transaction() as inside, inside.connection() as connection:
            claimed = await connection.fetchval(
                query("approvals/approvals", "begin_execution"), *self._owner, approval_id
            )
            await connection.execute(query("approvals/approvals", "delete_run"), *self._owner, approval_id)
        if claimed is None:
            raise AlreadyBegunError
        try:
            yield
        except Exception as error:
            await self._end_execution(approval_id, Execution.FAILED, f"It failed: {type(error).__name__}.")
            raise
        except BaseException:
            # The caller left, and nobody knows how far it came.
            await self._end_execution(approval_id, Execution.UNKNOWN, LOST_OUTCOME)
            raise
        await self._end_execution(approval_id, Execution.DONE, "It was carried out.")

    async def lock(self, connection: Connection, approval_id: UUID) -> Mapping[str, Any]:
        """Lock a request until the end of the transaction, and return its state. Raise NotFoundError if it is gone."""
        row = await connection.fetchrow(query("approvals/approvals", "lock"), *self._owner, approval_id)
        if row is None:
            raise NotFoundError(f"There is no request for approval {approval_id}.")
        return dict(row)

    async def close(
        self, connection: Connection, approval_id: UUID, status: ApprovalStatus, by: str | None, outcome: str | None
    ) -> None:
        """End a request without its action, inside of a transaction."""
        values = status.value, by, outcome, KEPT_DAYS
        await connection.execute(query("approvals/approvals", "close"), *self._owner, approval_id, *values)
        await connection.execute(query("approvals/approvals", "delete_run"), *self._owner, approval_id)

    async def complete(self, connection: Connection, approval_id: UUID, *, by: str, outcome: str) -> None:
        """Record in the transaction of an action that it was approved and carried out: all of it happens, or nothing.

        Lock the request first.
        """
        await connection.execute(query("approvals/approvals", "approve"), *self._owner, approval_id, by, None)
        _note_decision(approval_id)
        await connection.execute(query("approvals/approvals", "begin_execution"), *self._owner, approval_id)
        await connection.execute(
            query("approvals/approvals", "end_execution"),
            *self._owner,
            approval_id,
            Execution.DONE.value,
            outcome,
            KEPT_DAYS,
        )
        await connection.execute(query("approvals/approvals", "delete_run"), *self._owner, approval_id)

    @property
    def _owner(self) -> tuple[str, str | None]:
        return self._store.scope.tenant_id, self._store.scope.user_id

    async def _find_pending_ids(self, session_id: UUID | None, *, can_resume: bool = False) -> Sequence[UUID]:
        """Return the ids of requests that can be decided; with `can_resume`, also of approved ones that never began."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("approvals/approvals", "pending"), *self._owner, session_id, can_resume)
        return [row["id"] for row in rows]

    async def _get_by_code(self, code: str) -> Approval:
        plain = code.strip().lower().replace("-", "")
        open_ids = await self._find_pending_ids(None, can_resume=True)
        found = [request_id for request_id in open_ids if request_id.hex.startswith(plain)]
        if len(plain) < CODE_CHARS or not found:
            raise nothing_waits(code)
        if len(found) > 1:
            raise InvalidInputError(f"More than one request begins with {code}: give more characters of its id.")
        return await self.get(found[0])

    async def _end_execution(self, approval_id: UUID, execution: Execution, outcome: str) -> None:
        async with self._database.connection() as connection:
            values = execution.value, outcome, KEPT_DAYS
            await connection.execute(query("approvals/approvals", "end_execution"), *self._owner, approval_id, *values)


async def drop_stale_requests(database: Database) -> int:
    """End the requests of all owners that nobody decided in time, mark lost actions, and return their number."""
    async with database.connection() as connection:
        statement = query("approvals/approvals", "drop_stale")
        row = await connection.fetchrow(statement, EXPIRED_OUTCOME, LOST_OUTCOME, KEPT_DAYS, NEVER_BEGUN_OUTCOME)
    return int(row["overdue"]) + int(row["lost"]) if row else 0


def require_open(row: Mapping[str, Any], *, can_resume: bool = False) -> None:
    """Raise ConflictError, which says why, if a locked request cannot be decided any more.

    With `can_resume`, an approved one that has not begun counts as open.
    """
    status = row["status"]
    if status == ApprovalStatus.PENDING and row["is_overdue"]:
        raise ConflictError(
            f"The time to decide was over at {row['decide_by']:%H:%M} (UTC), so nothing is done. Ask again."
        )
    if status == ApprovalStatus.EXPIRED:
        raise ConflictError("The time to decide is over, so nothing is done. Ask again.")
    if status == ApprovalStatus.REJECTED:
        raise ConflictError("This was rejected before. Ask again if it should be done.")
    if status == ApprovalStatus.APPROVED and (row["execution"] is not None or not can_resume):
        raise ConflictError("This was approved before. It is done only once.")


def nothing_waits(code: str) -> NotFoundError:
    """Return the error for a code that no pending request has."""
    minutes = int(max(TIMEOUTS.values()).total_seconds() // 60)
    return NotFoundError(
        f"Nothing waits for the confirmation {code}: it was confirmed or rejected before, or is older than {minutes} "
        "minutes. Ask again to get a new list."
    )


def _note_decision(approval_id: UUID) -> None:
    """Add the decision to the audit log's entry of the running request."""
    note_action(Action.APPROVE)
    note_row("approvals", approval_id)


def _parse_id(text: str) -> UUID | None:
    try:
        return UUID(text.strip())
    except ValueError:
        return None
