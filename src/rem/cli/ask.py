"""`rem ask`: send a message to an agent and print its answer while it arrives."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption, load_settings, print_to_stderr, run_async

if TYPE_CHECKING:
    from rem.agents.answer_stream import AnswerStream
    from rem.agents.service import Agents
    from rem.cli.output import WrappingWriter
    from rem.events import AnyEvent

MAX_PRINTED_ARGUMENT_CHARS = 200
NOT_SURE_EXIT_CODE = 3


def ask(
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[MESSAGE]", help="The message. Without it, or with -, the message comes from standard input."
        ),
    ] = None,
    agent: Annotated[str, typer.Option("--agent", "-a", help="The agent; `rem agents list` shows all.")] = "rem",
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="The model, as provider:name. Default: LLM__DEFAULT_MODEL, or else rem:local."
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", "-s", help="The session to continue: its id, or any name that you choose."),
    ] = None,
    min_confidence: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Exit with code 3 if the agent states a lower confidence; 0.1 if it should have found something.",
        ),
    ] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Ask an agent and print its answer while it arrives.

    The session is stored: --session continues it. `rem --verbose ask` prints the tool calls on standard error. In a
    terminal, an action that needs your consent is asked about at once; otherwise `rem approvals` lists it.

    Exit codes: 0 answered, 2 bad input, 3 no such agent, or less sure than --min-confidence, 5 no database, 6 the model
    failed.
    """
    from rem.agents.chat import AgentRequest
    from rem.cli.approvals import ask_in_terminal
    from rem.context import AgentContext, Scope

    text = _read_message(text)
    scope = Scope.for_user(user, tenant)
    email = user if user and "@" in user else None
    context = AgentContext(user_id=scope.user_id, user_email=email, tenant_id=tenant, client_id="cli")
    if session:
        context = context.in_session(session)
    request = AgentRequest(context=context, text=text, agent=agent, model=model)

    async def work() -> float | None:
        async with _open_agents() as agents:
            answer = await agents.start(request)
            if as_json:
                return await _print_json_answer(answer)
            confidence = await print_events(answer, is_new=session is None)
            in_session = context.model_copy(update={"session_id": answer.session_id})
            while (rest := await ask_in_terminal(agents, answer, in_session)) is not None:
                answer = rest
                confidence = await print_events(answer, is_new=False)
            return confidence

    confidence = run_async(work)
    if min_confidence is not None and confidence is not None and confidence < min_confidence:
        print_to_stderr(f"The agent's confidence is {confidence:.0%}, less than {min_confidence:.0%}.")
        raise typer.Exit(NOT_SURE_EXIT_CODE)


def _read_message(text: str | None) -> str:
    """Return the message: the argument, or what standard input has."""
    from rem.errors import InvalidInputError

    if text is not None and text != "-":
        return text
    if text is None and sys.stdin.isatty():
        raise InvalidInputError('Write a message: rem ask "Who is Sarah Chen?"; or pipe one. `rem chat` talks.')
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"Standard input is not UTF-8 text: byte {error.start + 1} is not valid.") from error


@asynccontextmanager
async def _open_agents() -> AsyncIterator[Agents]:
    """Open the agents, with an open REM unless the database is switched off."""
    from rem.agents.service import Agents
    from rem.app import Rem

    settings = load_settings()
    opening = Rem.open(settings, on_progress=print_to_stderr) if settings.postgres.enabled else nullcontext()
    async with opening as rem:
        agents = Agents(rem, settings)
        try:
            yield agents
        finally:
            await agents.close()


async def _print_json_answer(answer: AnswerStream) -> float | None:
    from rem.cli.output import print_json

    complete = await answer.collect()
    print_json(complete)
    return complete.confidence


async def print_events(answer: AnswerStream, *, is_new: bool) -> float | None:
    """Print an answer while it arrives, and return the confidence that the agent stated. Raise its error, if any."""
    from rem.cli.output import WrappingWriter, get_line_width
    from rem.events import MetadataEvent
    from rem.privacy.policy import describe_masked

    writer = WrappingWriter(get_line_width())
    confidence = None
    async for event in answer.events():
        _print_event(event, writer)
        if isinstance(event, MetadataEvent) and event.confidence is not None:
            confidence = event.confidence
    writer.close()
    if answer.error is not None:
        raise answer.error
    if answer.masked:
        print_to_stderr(describe_masked(answer.masked))
    if is_new and answer.session_id is not None:
        print_to_stderr(f"(To go on: --session {answer.session_id})")
    return confidence


def _print_event(event: AnyEvent, writer: WrappingWriter) -> None:
    from loguru import logger

    from rem.events import ProgressEvent, TextEvent, ToolCallEvent

    match event:
        case TextEvent():
            writer.write(event.content)
        case ToolCallEvent(status="started"):
            arguments = ", ".join(f"{name}={value!r}" for name, value in (event.arguments or {}).items())
            logger.debug("{}: {}({})", event.agent, event.tool_name, arguments[:MAX_PRINTED_ARGUMENT_CHARS])
        case ProgressEvent(status="in_progress") if event.total_steps > 1:
            print_to_stderr(f"[{event.step}/{event.total_steps} {event.label}]")
