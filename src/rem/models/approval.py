"""Approvals: a person allows or rejects an action of an agent."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from pydantic import Field

from rem.models.entity import Entity
from rem.models.field_types import JsonObject, UtcDateTime

CODE_CHARS = 6


class RiskLevel(StrEnum):
    """The damage that a wrong action can do."""

    REVERSIBLE = "reversible"
    """It only reads, or makes notes on an answer. It is done at once."""
    REVERSIBLE_WITH_DELAY = "reversible_with_delay"
    """It changes what is stored, and a person can take it back."""
    IRREVERSIBLE = "irreversible"
    """It cannot be taken back. It always needs the consent of the user."""


class ApprovalStatus(StrEnum):
    """The decision on a request."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"


class Execution(StrEnum):
    """What became of an approved action."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It began and never reported its end, such as when the process was killed. It is not repeated."""


class Approval(Entity, table="approvals", key_fields=("id",), key_expression="id::text", summary="action_description"):
    """A request for approval and its decision. Words of the user are only in `parameters` and `proposal`."""

    session_id: UUID | None = None
    agent: str | None = None
    action_type: str = Field(min_length=1)
    action_description: str = Field(min_length=1)
    confidence: float = Field(default=1.0, ge=0, le=1)
    risk_level: RiskLevel
    tool_name: str = Field(min_length=1)
    parameters: JsonObject = Field(default_factory=dict)
    """The arguments of the tool. The end of the request empties them."""
    proposal: JsonObject = Field(default_factory=dict)
    """What the user was shown, for tools that show more than their arguments. The end of the request empties it."""
    requires_immediate_approval: bool = True
    """The run of an agent waits for the decision. Otherwise the action stands in a queue."""
    timeout_seconds: int | None = Field(default=None, gt=0, lt=2**31)
    decide_by: UtcDateTime | None = None
    status: ApprovalStatus = ApprovalStatus.PENDING
    decided_by: str | None = None
    decided_at: UtcDateTime | None = None
    execution: Execution | None = None
    """None if an approved action has not begun yet."""
    executed_at: UtcDateTime | None = None
    outcome: str | None = None
    """What became of the action, in a sentence without words of the user."""

    @property
    def code(self) -> str:
        """The beginning of the id, by which a person names the request."""
        return self.id.hex[:CODE_CHARS]
