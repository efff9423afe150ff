"""`rem ask`: a message to an agent, and its answer as it comes."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption, print_to_stderr, run_async

if TYPE_CHECKING:
    from rem.agents.answer_stream import AnswerStream
    from rem.agents.service import Agents
    from rem.events import AnyEvent


def ask(
    text: Annotated[str, typer.Argument(metavar="MESSAGE", help="What to ask; - reads it from standard input.")],
    agent: Annotated[str, typer.Option("--agent", "-a", help="Who answers: see `rem agents list`.")] = "rem",
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="provider:name; LLM__DEFAULT_MODEL if not given, else rem:local."),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", "-s", help="The conversation to go on with: its id, or a name of your own for it."),
    ] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Ask an agent. What it says is printed as it comes; what it does is told on standard error.

    The conversation is remembered: `--session` goes on with it.
    """
    from rem.agents.chat import AgentRequest
    from rem.context import AgentContext, Scope

    if text == "-":
        text = sys.stdin.read()
    scope = Scope.for_user(user, tenant)
    email = user if user and "@" in user else None
    context = AgentContext(user_id=scope.user_id, user_email=email, tenant_id=tenant, client_id="cli")
    if session:
        context = context.in_session(session)
    turn = AgentRequest(context=context, text=text, agent=agent, model=model)

    async def work() -> None:
        async with _open_agents() as agents:
            conversation = await agents.start(turn)
            await (_print_whole(conversation) if as_json else _print_events(conversation))

    run_async(work)


@asynccontextmanager
async def _open_agents() -> AsyncIterator[Agents]:
    """The agents of an open REM, or of none if the database is switched off."""
    from rem.agents.service import Agents
    from rem.app import Rem
    from rem.settings import get_settings

    settings = get_settings()
    opening = Rem.open(settings, on_progress=print_to_stderr) if settings.postgres.enabled else nullcontext()
    async with opening as rem:
        agents = Agents(rem, settings)
        try:
            yield agents
        finally:
            await agents.close()


async def _print_whole(conversation: AnswerStream) -> None:
    from rem.cli.output import print_json

    print_json(await conversation.collect())


async def _print_events(conversation: AnswerStream) -> None:
    async for event in conversation.events():
        _print(event)
    typer.echo()
    if conversation.error is not None:
        raise conversation.error
    if conversation.session_id is not None:
        print_to_stderr(f"Session {conversation.session_id}: go on with --session {conversation.session_id}")


def _print(event: AnyEvent) -> None:
    from rem.events import TextEvent, ToolCallEvent

    match event:
        case TextEvent():
            typer.echo(event.content, nl=False)
            sys.stdout.flush()
        case ToolCallEvent(status="started"):
            arguments = ", ".join(f"{name}={value!r}" for name, value in (event.arguments or {}).items())
            print_to_stderr(f"[{event.agent}: {event.tool_name}({arguments[:200]})]")
