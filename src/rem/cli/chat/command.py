"""The command `rem chat`."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from rem.cli.runtime import NO_USER_HINT, ApiKeyOption, TenantOption, UrlOption, UserOption, print_to_stderr, run_async

if TYPE_CHECKING:
    from rem.cli.chat.connection import ChatConnection
    from rem.cli.chat.prompt import Prompt
    from rem.context import AgentContext

MAX_EARLIER_SESSIONS = 5
MAX_EARLIER_MESSAGES = 200


def chat(
    session: Annotated[
        str | None,
        typer.Option("--session", "-s", help="The session to continue: its id, or any name that you choose."),
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", "-a", help="The agent. Default: rem.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="The model, as provider:name.")] = None,
    url: UrlOption = None,
    api_key: ApiKeyOption = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Talk to an agent that remembers. /help lists the commands of the chat.

    Without a terminal, each line of standard input is a message, and the answers are printed as plain text.
    """
    from rem.context import AgentContext, Scope

    if user is None and url is None:
        print_to_stderr(NO_USER_HINT)
    scope = Scope.for_user(user, tenant)
    email = user if user and "@" in user else None
    context = AgentContext(user_id=scope.user_id, user_email=email, tenant_id=tenant, client_id="cli")

    async def work() -> bool:
        from rem.cli.chat.commands import ChatState
        from rem.cli.chat.conversation import Conversation
        from rem.cli.chat.screen import Screen

        async with _connect(url, api_key, context, user) as connection:
            state = ChatState(user, session, agent, model)
            screen = Screen()
            conversation = Conversation(connection, screen, _open_prompt(connection), state)
            if screen.is_terminal:
                screen.note(f"Talking to {agent or 'rem'} with {connection.describe()}. /help lists the commands.")
            await conversation.run()
            if screen.is_terminal and state.session:
                screen.note(f"Continue with: rem chat --session {state.session}")
            return conversation.has_failed and not sys.stdin.isatty()

    if run_async(work):
        raise typer.Exit(1)


def _connect(
    url: str | None, api_key: str | None, context: AgentContext, user: str | None
) -> AbstractAsyncContextManager[ChatConnection]:
    if url is not None:
        from rem.cli.chat.remote import RemoteConnection

        return RemoteConnection.open(url, api_key, context, user)
    from rem.cli.chat.local import LocalConnection
    from rem.settings import get_settings

    return LocalConnection.open(context, get_settings())


def _open_prompt(connection: ChatConnection) -> Prompt:
    from rem.cli.chat.prompt import PipedPrompt, TerminalPrompt

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return PipedPrompt()
    from rem.cli.chat.commands import complete_line

    return TerminalPrompt(lambda line: complete_line(line, connection), lambda: _load_earlier(connection))


async def _load_earlier(connection: ChatConnection) -> list[str]:
    """Return what the user wrote in the last sessions, oldest first, for the arrow keys; nothing after an error.

    The next message meets the same error, and tells it.
    """
    from rem.errors import RemError

    try:
        messages = [
            message
            for session in await connection.list_sessions(MAX_EARLIER_SESSIONS)
            for message in await connection.list_messages(session.id)
            if message.role == "user"
        ]
    except RemError:
        return []
    messages.sort(key=lambda message: message.created_at)
    return [message.content for message in messages[-MAX_EARLIER_MESSAGES:]]
