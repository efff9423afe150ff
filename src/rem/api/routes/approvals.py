"""`/approvals`: the actions of agents that wait for the caller's consent, and the decisions on them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rem.api.dependencies import AgentsDep, ContextDep, JsonBody, RemDep
from rem.api.disconnect import cancel_on_disconnect
from rem.api.openapi_errors import error_responses
from rem.api.pagination import Page, WindowDep
from rem.api.sse import ChunkEncoder, SseResponse
from rem.models import ApprovalStatus, Execution, RiskLevel
from rem.models.field_types import check_text
from rem.tools.approved_calls import show_request
from rem.tools.consent import Decision

router = APIRouter(prefix="/approvals", tags=["approvals"])

BY_API = "user by API"


class ApprovalView(BaseModel):
    """A request for approval. Its arguments are emptied when it has ended."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    code: str = Field(description="The beginning of the id, by which a person names the request.")
    session_id: UUID | None
    agent: str | None
    action_type: str
    action_description: str
    confidence: float
    risk_level: RiskLevel
    tool_name: str
    parameters: dict[str, Any]
    requires_immediate_approval: bool = Field(description="The run of an agent waits for the decision.")
    timeout_seconds: int | None
    decide_by: datetime | None = Field(description="After this time nothing is done.")
    status: ApprovalStatus
    decided_by: str | None
    decided_at: datetime | None
    execution: Execution | None = Field(
        description="What became of an approved action; `unknown`: it began and never reported its end."
    )
    executed_at: datetime | None
    outcome: str | None
    created_at: datetime


class ApprovalDetails(ApprovalView):
    """A request for approval, with what the user is shown."""

    preview: str


class DecideRequest(BaseModel):
    """The decision of the caller on a request."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"decision": "approve"}})

    decision: Literal["approve", "reject"]
    parameters: dict[str, Any] | None = Field(
        default=None, description="All arguments of the tool, as the caller edited them; default: as proposed."
    )
    only: list[int] | None = Field(
        default=None, min_length=1, max_length=100, description="The numbers of the rows to change; default: all."
    )
    reason: Annotated[str, AfterValidator(check_text)] | None = Field(default=None, max_length=2000)
    stream: bool = Field(default=False, description="Return the answer of the agent as server-sent events.")


class DecideResponse(BaseModel):
    """The request after the decision, and what the agent says to it."""

    approval: ApprovalView
    answer: str
    session_id: str | None
    message_id: str | None
    approval_id: str | None = Field(description="The next request on which the answer waits, if there is one.")


RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "model": DecideResponse,
        "description": "The result; with `stream`: server-sent events, as in a chat.",
        "content": {"text/event-stream": {}},
    },
    **error_responses(404, 409),
}


@router.get("", summary="List requests for approval")
async def list_approvals(
    rem: RemDep,
    context: ContextDep,
    window: WindowDep,
    status: Annotated[ApprovalStatus | None, Query(description="Only requests with this status.")] = None,
) -> Page[ApprovalView]:
    """List the caller's own requests, newest first."""
    rows = await rem.for_user(context.scope).approvals.list(status, limit=window.fetch_limit, offset=window.offset)
    return Page[ApprovalView].model_validate(window.slice_page([ApprovalView.model_validate(row) for row in rows]))


@router.get("/{approval}", summary="Get a request for approval", responses=error_responses(404))
async def get_approval(approval: UUID, rem: RemDep, context: ContextDep, agents: AgentsDep) -> ApprovalDetails:
    """Return one of the caller's own requests, with a preview of what would be done."""
    row = await rem.for_user(context.scope).approvals.get(approval)
    preview = await show_request(agents.env(context), row)
    return ApprovalDetails(**ApprovalView.model_validate(row).model_dump(), preview=preview)


@router.post("/{approval}/decision", responses=RESPONSES, response_model=None, dependencies=[JsonBody])
async def decide_approval(
    request: Request, approval: UUID, body: DecideRequest, rem: RemDep, context: ContextDep, agents: AgentsDep
) -> Response:
    """Approve or reject one of the caller's own requests, perhaps with edited arguments.

    An approved action is carried out once. The agent that waits for the decision goes on, and its answer is returned
    and stored in the session. A request that was decided before, or whose time is over, is a conflict (409).
    """
    row = await rem.for_user(context.scope).approvals.get(approval)
    decision = Decision(
        is_approved=body.decision == "approve",
        by=BY_API,
        numbers=body.only,
        parameters=body.parameters,
        reason=body.reason,
    )
    answering = await agents.decide(row, decision, context)
    if body.stream:
        return SseResponse(ChunkEncoder(answering, with_usage=False).encode(), {})
    answer = await cancel_on_disconnect(request, answering.collect())
    result = DecideResponse(
        approval=ApprovalView.model_validate(await rem.for_user(context.scope).approvals.get(row.id)),
        answer=answer.text,
        session_id=answer.session_id,
        message_id=answer.message_id,
        approval_id=answer.approval_id,
    )
    return JSONResponse(result.model_dump(mode="json"))
