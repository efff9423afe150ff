"""Approvals: a person allows or rejects an action of an agent."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from pydantic import Field

from rem.models.entity import Entity
from rem.models.field_types import JsonObject, UtcDateTime


class RiskLevel(StrEnum):
    """The damage that a wrong action can do."""

    REVERSIBLE = "reversible"
    REVERSIBLE_WITH_DELAY = "reversible_with_delay"
    IRREVERSIBLE = "irreversible"


class ApprovalStatus(StrEnum):
    """The decision on a request."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"


class Approval(Entity, table="approvals", key_fields=("id",), key_expression="id::text", summary="action_description"):
    """A request for approval and its decision."""

    session_id: UUID | None = None
    action_type: str = Field(min_length=1)
    action_description: str = Field(min_length=1)
    risk_level: RiskLevel
    tool_name: str = Field(min_length=1)
    parameters: JsonObject = Field(default_factory=dict)
    requires_immediate_approval: bool = True
    timeout_seconds: int | None = Field(default=None, gt=0, lt=2**31)
    status: ApprovalStatus = ApprovalStatus.PENDING
    decided_by: str | None = None
    decided_at: UtcDateTime | None = None
