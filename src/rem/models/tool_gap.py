"""Tool gaps: tools that an agent needed and did not have."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from rem.models.entity import Entity


class ToolGap(Entity, table="tool_gaps", key_fields=("id",), key_expression="id::text", summary="attempted_task"):
    """A tool that an agent called but does not have, with the task of the last call."""

    session_id: UUID | None = None
    agent: str | None = None
    occurrences: int = Field(default=1, ge=1, lt=2**31)
    missing_tools: list[str] = Field(min_length=1)
    attempted_task: str = Field(min_length=1)
    existing_tools_checked: list[str] = Field(default_factory=list)
    proposed_mcp_server: str | None = None
