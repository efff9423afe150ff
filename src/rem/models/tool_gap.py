"""A tool that an agent would have needed."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from rem.models.entity import Entity


class ToolGap(Entity, table="tool_gaps", key_fields=("id",), key_expression="id::text", summary="attempted_task"):
    """A task that failed for want of a tool."""

    session_id: UUID | None = None
    missing_tools: list[str] = Field(min_length=1)
    attempted_task: str = Field(min_length=1)
    existing_tools_checked: list[str] = Field(default_factory=list)
    proposed_mcp_server: str | None = None
