"""Carry out an approved call of a tool outside of the run of an agent, and check edited arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rem.errors import InvalidInputError
from rem.models import ApprovalStatus
from rem.models.field_types import to_json_value
from rem.tools.binding import ToolFunction, check_arguments, describe_call, get_traits
from rem.tools.registry import AGENT_TOOLS

if TYPE_CHECKING:
    from rem.models import Approval
    from rem.tools.consent import Decision
    from rem.tools.env import ToolEnv


def get_tool(approval: Approval) -> ToolFunction:
    """Return the tool of a request. Raise InvalidInputError if it does not exist any more."""
    function = AGENT_TOOLS.get(approval.tool_name)
    if function is None:
        raise InvalidInputError(f"There is no tool {approval.tool_name!r} any more: reject the request.")
    return function


def is_self_contained(approval: Approval) -> bool:
    """Return whether the tool of a request carries it out itself, without the run of an agent."""
    return get_traits(get_tool(approval)).carry_out is not None


def check_decision(approval: Approval, decision: Decision) -> None:
    """Raise InvalidInputError, which names each error, if edited arguments or chosen rows do not fit the request."""
    if decision.parameters is not None:
        try:
            to_json_value(decision.parameters)
        except ValueError as error:
            raise InvalidInputError(f"The arguments cannot be stored: parameters {error}.") from error
        check_arguments(get_tool(approval), decision.parameters)
    if decision.numbers is not None and not approval.proposal.get("rows"):
        raise InvalidInputError("This request has no numbered rows, so none can be chosen: decide on all of it.")


async def show_request(env: ToolEnv, approval: Approval) -> str:
    """Return what a pending request would do, for the user to read; its description if it has ended."""
    if approval.status is not ApprovalStatus.PENDING:
        return approval.action_description
    if "rows" in approval.proposal:
        return (await env.rem.for_user(env.scope).changes.show(approval)).preview
    return describe_call(get_tool(approval), approval.parameters).preview


async def carry_out(env: ToolEnv, approval: Approval, decision: Decision) -> dict[str, Any]:
    """Carry out an approved request, once, and return the result of its tool."""
    function = get_tool(approval)
    own = get_traits(function).carry_out
    if own is not None:
        return await own(env, approval, decision)
    check_decision(approval, decision)
    approvals = env.rem.for_user(env.scope).approvals
    recorded = await approvals.approve(approval, by=decision.by, parameters=decision.parameters)
    async with approvals.executing(approval.id):
        result: dict[str, Any] = await function(env, **check_arguments(function, recorded))
    return result
