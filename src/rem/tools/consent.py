"""Ask the user for consent to a call: at once if the client can ask, else by a request that the user decides later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from rem.approvals.approvals import Proposal
from rem.errors import InvalidInputError

if TYPE_CHECKING:
    from rem.models import Approval
    from rem.tools.env import ToolEnv

FROM_CLIENT = "user in a client"
"""Who decided: the user, in a client that asks its user, such as an MCP client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision of a person on a request. No model makes one."""

    is_approved: bool
    by: str
    """Where the person decided."""
    numbers: Sequence[int] | None = None
    """The rows of the preview that the person chose; None for all."""
    parameters: Mapping[str, Any] | None = None
    """The arguments as the person edited them; None if they stay."""
    reason: str | None = None


CarryOut: TypeAlias = Callable[["ToolEnv", "Approval", Decision], Awaitable[dict[str, Any]]]


class ConsentNeeded(Exception):  # noqa: N818  # not an error: the run waits for the user
    """A call in a chat waits for the consent of the user, so the run of the agent pauses.

    Without a proposal: an agent that this one asked waits, and has asked the user itself.
    """

    def __init__(self, proposal: Proposal | None) -> None:
        super().__init__("the user is asked")
        self.proposal = proposal


def require_visible_question(env: ToolEnv) -> None:
    """Raise InvalidInputError if the user would not see what is to be done: a later yes would confirm it unseen."""
    if env.hides_text:
        raise InvalidInputError(
            "This needs the consent of the user, and the user would not see the question here: this answer is "
            "structured, or is made for another program. The user can ask for it in a chat that answers in plain text."
        )


async def ask_consent(
    env: ToolEnv, proposal: Proposal, carry_out: Callable[[Approval], Awaitable[Any]]
) -> dict[str, Any]:
    """Let the user decide on a proposal. Return the result of `carry_out`, or how the user can decide.

    Raise ConsentNeeded in a chat: the run of the agent stores the request and shows it.
    """
    require_visible_question(env)
    if env.is_chat:
        raise ConsentNeeded(proposal)
    approvals = env.rem.for_user(env.scope).approvals
    approval = await approvals.request(proposal)
    decision = await env.ask_user(proposal.preview, approval) if env.ask_user is not None else None
    if decision is None:
        return _describe_request(proposal, approval)
    if not decision:
        await approvals.reject(approval, by=FROM_CLIENT)
        return {"status": "rejected", "changed": False}
    result: dict[str, Any] = await carry_out(approval)
    return result


def describe_question(approval: Approval, rows: int) -> str:
    """Return how the user decides on a request in chat."""
    verb = approval.tool_name if approval.tool_name in ("forget", "correct") else "do"
    which = "it" if rows < 2 else "these"
    choice = ", or choose some, such as `/approve 1`" if rows > 1 else ""
    no = "`no` to keep everything" if rows else "`no` to leave it"
    return f"Answer `yes` to {verb} {which}, {no}{choice}. (`/approve {approval.code}` works in any session.)"


def _describe_request(proposal: Proposal, approval: Approval) -> dict[str, Any]:
    result: dict[str, Any] = {
        "status": "needs_approval",
        "changed": False,
        "approval_id": str(approval.id),
        "code": approval.code,
        "preview": proposal.preview,
    }
    if proposal.rows:
        result["rows"] = list(proposal.rows)
    if approval.decide_by is not None:
        result["decide_by"] = approval.decide_by.isoformat(timespec="seconds")
    result["next"] = (
        f"Only the user can approve this: in a terminal with `rem approvals approve {approval.code}`, or with POST "
        f"/api/v1/approvals/{approval.id}/decision."
    )
    return result
