"""Tool gaps: note the tools that an agent called but does not have, and store them for people to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from rem.db.sql import query
from rem.text import clean_text, collapse_spaces

if TYPE_CHECKING:
    from rem.db.database import Database
    from rem.db.store import Store

MAX_GAPS_PER_ANSWER = 20
"""A model that invents names must not fill the table."""
MAX_NAME_CHARS = 200
MAX_TASK_CHARS = 500


class ToolGapReport(BaseModel):
    """The tools that an agent called in one answer although it does not have them."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={
            "example": {
                "missing_tools": ["send_email"],
                "attempted_task": "Send the summary to Sarah by e-mail.",
                "existing_tools_checked": ["search_rem", "ask_agent"],
                "proposed_mcp_server": None,
                "agent": "rem",
            }
        },
    )

    missing_tools: list[str] = Field(min_length=1, description="The names that the agent called.")
    attempted_task: str = Field(min_length=1, description="The message that the agent answered.")
    existing_tools_checked: list[str] = Field(default_factory=list, description="The tools that the agent has.")
    proposed_mcp_server: str | None = Field(default=None, description="An MCP server that would offer the tools.")
    agent: str


class ToolGapCollector:
    """Collects the gaps of one answer, also those of agents that it calls."""

    def __init__(self) -> None:
        self._reports: dict[str, ToolGapReport] = {}

    def add(self, agent: str, tool_name: str, tool_names: Sequence[str], task: str) -> None:
        """Note that `agent`, which has `tool_names`, called `tool_name` for a task."""
        name = collapse_spaces(clean_text(tool_name))[:MAX_NAME_CHARS] or "(no name)"
        report = self._reports.get(agent)
        known = report.missing_tools if report is not None else []
        if name in known or sum(len(other.missing_tools) for other in self._reports.values()) >= MAX_GAPS_PER_ANSWER:
            return
        self._reports[agent] = ToolGapReport(
            missing_tools=[*known, name],
            attempted_task=collapse_spaces(clean_text(task))[:MAX_TASK_CHARS] or "(no text)",
            existing_tools_checked=list(tool_names),
            agent=agent,
        )

    @property
    def reports(self) -> list[ToolGapReport]:
        """One report for each agent that called a missing tool."""
        return list(self._reports.values())


async def store_tool_gaps(store: Store, reports: Sequence[ToolGapReport], session_id: UUID | None) -> None:
    """Count the gaps in the table `tool_gaps`, which has one row for each agent and tool of a user."""
    owner, ids = (store.scope.tenant_id, store.scope.user_id), store.executor.derived_ids
    privacy = store.executor.privacy.masking
    async with store.transaction() as transaction, transaction.executor.connection() as connection:
        await connection.execute(query("agents/tool_gaps", "lock_gaps"), *owner)
        for report in reports:
            for tool in report.missing_tools:
                await connection.execute(
                    query("agents/tool_gaps", "record_gap"),
                    *owner,
                    ids.make("tool gap", *owner, report.agent, tool),
                    report.agent,
                    tool,
                    privacy.mask(report.attempted_task),
                    report.existing_tools_checked,
                    session_id,
                )


async def count_gaps_of_all_users(database: Database, tenant_id: str, limit: int) -> list[dict[str, Any]]:
    """Return agent, tool, occurrences, users and updated_at of the gaps of a tenant, the most frequent first."""
    async with database.connection() as connection:
        return [dict(row) for row in await connection.fetch(query("agents/tool_gaps", "all_gaps"), tenant_id, limit)]
