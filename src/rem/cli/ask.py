"""`rem ask`: send a message to an agent and print its answer while it arrives."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rem.cli.runtime import (
    NO_USER_HINT,
    ApiKeyOption,
    JsonOption,
    TenantOption,
    UrlOption,
    UserOption,
    load_settings,
    print_to_stderr,
    run_async,
)

if TYPE_CHECKING:
    from rem.agents.answer_stream import AnswerStream
    from rem.cli.chat.connection import ChatConnection, OutgoingMessage
    from rem.cli.output import WrappingWriter
    from rem.context import AgentContext
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
    url: UrlOption = None,
    api_key: ApiKeyOption = None,
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
    from rem.context import AgentContext, Scope

    text = _read_message(text)
    scope = Scope.for_user(user, tenant)
    email = user if user and "@" in user else None
    context = AgentContext(user_id=scope.user_id, user_email=email, tenant_id=tenant, client_id="cli")

    async def work() -> float | None:
        if url is None:
            return await _ask_here(context.in_session(session) if session else context, text, agent, model, as_json)
        from rem.cli.chat.connection import OutgoingMessage
        from rem.cli.chat.remote import RemoteConnection

        message = OutgoingMessage(text, session, agent, model)
        return await _ask_server(message, RemoteConnection.open(url, api_key, context, user), as_json)

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


async def _ask_here(context: AgentContext, text: str, agent: str, model: str | None, as_json: bool) -> float | None:
    """Ask an agent in this process and print its answer. Return the confidence that it stated."""
    from rem.agents.chat import AgentRequest
    from rem.agents.service import Agents
    from rem.cli.approvals import ask_in_terminal
    from rem.message_kinds import classify_message
    from rem.models.message import MessageKind

    async with Agents.open(load_settings(), on_progress=print_to_stderr) as agents:
        answer = await agents.start(AgentRequest(context=context, text=text, agent=agent, model=model))
        if as_json:
            return await _print_json_answer(answer)
        confidence = await print_events(answer, is_new=context.session_id is None)
        in_session = context.model_copy(update={"session_id": answer.session_id})
        while (rest := await ask_in_terminal(agents, answer, in_session)) is not None:
            answer = rest
            confidence = await print_events(answer, is_new=False)
    if context.user_id is None and classify_message(text) is MessageKind.STATEMENT:
        print_to_stderr(NO_USER_HINT)
    return confidence


async def _ask_server(
    message: OutgoingMessage, connecting: AbstractAsyncContextManager[ChatConnection], as_json: bool
) -> float | None:
    """Ask a server and print its answer. Return the confidence that the agent stated. Raise its error, if any."""
    from rem.cli.output import WrappingWriter, get_line_width, print_json
    from rem.errors import ModelError

    answer, writer = ServerAnswer(), WrappingWriter(get_line_width())
    async with connecting as connection, aclosing(connection.send(message)) as events:
        async for event in events:
            answer.add(event)
            if not as_json:
                _print_event(event, writer)
    if not as_json:
        writer.close()
    if answer.error is not None:
        raise ModelError(answer.error)
    if as_json:
        print_json(answer.as_json())
    elif message.session is None and answer.session_id is not None:
        print_to_stderr(f"(To go on: --session {answer.session_id})")
    return answer.confidence


@dataclass(slots=True)
class ServerAnswer:
    """What the events of a server say about its answer, by the names of `AgentAnswer`."""

    text: str = ""
    agent: str | None = None
    model: str | None = None
    session_id: str | None = None
    message_id: str | None = None
    reasoning: str = ""
    tool_calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    confidence: float | None = None
    sources: list[str] | None = None
    error: str | None = None

    def add(self, event: AnyEvent) -> None:
        """Note one event."""
        from rem.events import ErrorEvent, MetadataEvent, ReasoningEvent, TextEvent, ToolCallEvent

        match event:
            case TextEvent():
                self.text += event.content
            case ReasoningEvent():
                self.reasoning += event.content
            case ToolCallEvent(status="started"):
                self.tool_calls[event.tool_id] = {"name": event.tool_name, "args": event.arguments, "result": None}
            case ToolCallEvent() if event.tool_id in self.tool_calls:
                self.tool_calls[event.tool_id]["result"] = event.result
            case MetadataEvent():
                self.agent = event.agent_schema or self.agent
                self.model = event.model_version or self.model
                self.session_id = event.session_id or self.session_id
                self.message_id = event.message_id or self.message_id
                self.confidence = self.confidence if event.confidence is None else event.confidence
                self.sources = event.sources or self.sources
            case ErrorEvent():
                self.error = event.message

    def as_json(self) -> dict[str, Any]:
        """Return the answer as JSON values."""
        values = asdict(self)
        del values["error"]
        return {**values, "reasoning": self.reasoning or None, "tool_calls": list(self.tool_calls.values())}


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
