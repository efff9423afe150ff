"""Tool gaps: tools that an agent needed and did not have."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from rem.models.entity import Entity


class ToolGap(Entity, table="tool_gaps", key_fields=("id",), key_expression="id::text", summary="attempted_task"):
    """A task that failed because a tool was missing."""

    session_id: UUID | None = None
    missing_tools: list[str] = Field(min_length=1)
    attempted_task: str = Field(min_length=1)
    existing_tools_checked: list[str] = Field(default_factory=list)
    proposed_mcp_server: str | None = None
