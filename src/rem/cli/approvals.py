"""`rem approvals`: list the actions of agents that wait for your decision, and decide."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rem.cli.runtime import (
    JsonOption,
    TenantOption,
    UserOption,
    YesOption,
    confirm,
    print_to_stderr,
    run_with_rem,
)
from rem.cli.terminal_text import echo, escape_control_characters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rem.agents.answer_stream import AnswerStream
    from rem.agents.service import Agents
    from rem.app import Rem
    from rem.context import AgentContext
    from rem.forget.change_requests import ChangeReport, ChangeRequest
    from rem.models import Approval
    from rem.tools.consent import Decision

app = typer.Typer(help="Approve or reject actions of agents that wait for you.", no_args_is_help=True)

RefArgument = Annotated[
    str, typer.Argument(metavar="REQUEST", help="The id of the request, or its first six characters.")
]
IN_TERMINAL = "user in a terminal"


@app.command("list")
def list_requests(
    every: Annotated[bool, typer.Option("--all", help="Also those that were decided or have expired.")] = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """List the requests that wait for a decision, newest first."""
    from rem.cli.output import print_json
    from rem.models import ApprovalStatus

    async def work(rem: Rem) -> Sequence[Approval]:
        approvals = rem.for_user(user, tenant=tenant).approvals
        return await (approvals.list() if every else approvals.find_pending())

    rows = run_with_rem(work)
    if as_json:
        print_json([to_view(row) for row in rows])
        return
    for row in rows:
        state = f" until {row.decide_by:%H:%M} UTC" if row.decide_by and row.status is ApprovalStatus.PENDING else ""
        echo(f"{row.code}  {row.status.value}{state}  {row.tool_name}: {row.action_description}")
    if not rows:
        echo("Nothing waits for a decision." if not every else "There are no requests.")


@app.command()
def show(
    request: RefArgument,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show what a request would do, its risk, and its deadline."""
    from rem.cli.output import print_json

    async def work(rem: Rem) -> tuple[Approval, str]:
        approval = await rem.for_user(user, tenant=tenant).approvals.get(request)
        return approval, await _preview(rem, approval, user, tenant)

    approval, preview = run_with_rem(work)
    if as_json:
        print_json({**to_view(approval), "preview": preview})
        return
    _print_preview(preview)
    echo(f"\nStatus: {approval.status.value}. Risk: {approval.risk_level.value}.")
    if approval.outcome:
        echo(approval.outcome)


@app.command()
def approve(
    request: RefArgument,
    parameters: Annotated[
        str | None, typer.Option("--parameters", metavar="JSON", help="All arguments of the tool, as you edited them.")
    ] = None,
    only: Annotated[list[int] | None, typer.Option("--only", help="Only this number of the list; repeatable.")] = None,
    yes: YesOption = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show a request, ask, and carry it out. The agent that waits for it goes on, and its answer is printed."""
    from rem.tools.consent import Decision

    edited = None if parameters is None else _parse_parameters(parameters)
    decision = Decision(is_approved=True, by=IN_TERMINAL, numbers=only or None, parameters=edited)

    async def work(rem: Rem) -> dict[str, Any]:
        approval = await rem.for_user(user, tenant=tenant).approvals.get(request)
        if not yes:
            _print_preview(await _preview(rem, approval, user, tenant), err=as_json)
            confirm("Approve this?")
        return await _decide(rem, approval, decision, user, tenant, as_json=as_json)

    _print_result(run_with_rem(work), as_json)


@app.command()
def reject(
    request: RefArgument,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; the agent reads it.")] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Reject a request. The agent that waits for it goes on without the action, and its answer is printed."""
    reject_request(request, reason, user, tenant, as_json)


def reject_request(request: str, reason: str | None, user: str | None, tenant: str, as_json: bool) -> None:
    """Reject a request, and print what the agent says to it."""
    from rem.tools.consent import Decision

    decision = Decision(is_approved=False, by=IN_TERMINAL, reason=reason)

    async def work(rem: Rem) -> dict[str, Any]:
        approval = await rem.for_user(user, tenant=tenant).approvals.get(request)
        return await _decide(rem, approval, decision, user, tenant, as_json=as_json)

    _print_result(run_with_rem(work), as_json)


def approve_change(code: str, *, yes: bool, user: str | None, tenant: str, as_json: bool) -> None:
    """Show what an agent wants to forget or correct, ask, carry it out, and print a report of the rows."""
    from rem.cli.remember import ask_and_confirm, print_change
    from rem.errors import InvalidInputError
    from rem.forget.change_requests import ChangeRequest

    async def work(rem: Rem) -> tuple[ChangeRequest, ChangeReport | None]:
        changes = rem.for_user(user, tenant=tenant).changes
        approval = await rem.for_user(user, tenant=tenant).approvals.get(code)
        if "rows" not in approval.proposal:
            raise InvalidInputError(f"This is no change of the memory: use `rem approvals approve {code}`.")
        request = ChangeRequest(await changes.show(approval), approval)
        return request, await ask_and_confirm(changes, request, dry_run=False, yes=yes, as_json=as_json)

    print_change(*run_with_rem(work), as_json=as_json)


async def ask_in_terminal(agents: Agents, answer: AnswerStream, context: AgentContext) -> AnswerStream | None:
    """Ask the person at the terminal about the action on which an answer waits, and return the rest of the answer.

    Return None if the answer waits for nothing, or if nobody is at a terminal: then the request stays.
    """
    from rem.errors import InvalidInputError
    from rem.tools.consent import Decision

    if answer.approval is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    parameters = answer.approval.parameters
    while True:
        choice = typer.prompt("Approve? [y]es, [n]o, [e]dit, [l]ater", err=True).strip().lower()[:1]
        if choice not in ("y", "n", "e"):
            print_to_stderr(f"It waits for you: rem approvals approve {answer.approval.code}")
            return None
        try:
            if choice != "e":
                is_edited = parameters != answer.approval.parameters
                edited = parameters if is_edited else None
                decision = Decision(is_approved=choice == "y", by=IN_TERMINAL, parameters=edited)
                return await agents.decide(answer.approval, decision, context)
            current = json.dumps(parameters, ensure_ascii=False)
            parameters = _parse_parameters(typer.prompt("Arguments, as JSON", default=current, err=True))
        except InvalidInputError as error:
            # Arguments that are not JSON, or that the tool does not take: the person can edit them again.
            print_to_stderr(f"Error: {error}")


def to_view(approval: Approval) -> dict[str, Any]:
    """Return a request as JSON for people and programs."""
    hidden = {"proposal", "graph_edges", "tags", "sources", "run_id", "valid_from", "valid_to", "key", "origin"}
    return {**approval.model_dump(mode="json", exclude=hidden), "code": approval.code}


def _print_preview(preview: str, *, err: bool = False) -> None:
    from rem.cli.output import print_wrapped

    print_wrapped(escape_control_characters(preview), indent="   ", err=err)


async def _preview(rem: Rem, approval: Approval, user: str | None, tenant: str) -> str:
    from rem.tools.approved_calls import show_request
    from rem.tools.env import ToolEnv

    return await show_request(ToolEnv(_make_context(user, tenant), rem), approval)


async def _decide(
    rem: Rem, approval: Approval, decision: Decision, user: str | None, tenant: str, *, as_json: bool
) -> dict[str, Any]:
    from rem.cli.ask import print_events

    answer = await rem.agents.decide(approval, decision, _make_context(user, tenant))
    if as_json:
        text = (await answer.collect()).text
    else:
        text = ""
        await print_events(answer, is_new=False)
    decided = await rem.for_user(user, tenant=tenant).approvals.get(approval.id)
    return {**to_view(decided), "answer": text}


def _make_context(user: str | None, tenant: str) -> AgentContext:
    from rem.context import AgentContext, Scope

    email = user if user and "@" in user else None
    user_id = Scope.for_user(user, tenant).user_id
    return AgentContext(user_id=user_id, user_email=email, tenant_id=tenant, client_id="cli")


def _print_result(result: dict[str, Any], as_json: bool) -> None:
    from rem.cli.output import print_json

    if as_json:
        print_json(result)


def _parse_parameters(text: str) -> dict[str, Any]:
    from rem.errors import InvalidInputError

    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"The arguments are not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise InvalidInputError('The arguments must be a JSON object, such as \'{"text": "…"}\'.')
    return value
