"""The loop of a chat: read a message or a command, print the answer, stop it at Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from uuid import uuid4

from rem.cli.chat.cards import answer_card
from rem.cli.chat.commands import COMMANDS, ChatState, complete_line, run_command
from rem.cli.chat.connection import ChatConnection, OutgoingMessage
from rem.cli.chat.prompt import Prompt
from rem.cli.chat.screen import Screen
from rem.errors import RemError
from rem.events import ActionCard, ActionRequestEvent, ErrorEvent, MetadataEvent


@dataclass(slots=True)
class TurnResult:
    """What a turn left behind: the cards to answer, and whether it failed."""

    cards: list[ActionCard]
    has_failed: bool = False


class Conversation:
    """One chat of a user with an agent."""

    def __init__(self, connection: ChatConnection, screen: Screen, prompt: Prompt, state: ChatState) -> None:
        self._connection = connection
        self._screen = screen
        self._prompt = prompt
        self._state = state
        self.has_failed = False
        """A turn or a command failed. A script gets an exit code other than 0."""

    async def run(self) -> None:
        """Read and answer messages until the user leaves."""
        while not self._state.is_over:
            try:
                line = await self._prompt.read()
            except KeyboardInterrupt:
                self._screen.note("Ctrl-D or /quit leaves the chat.")
                continue
            if line is None:
                return
            if line.strip():
                await self._handle(line)

    async def _handle(self, line: str) -> None:
        name = line.strip().split(maxsplit=1)[0]
        try:
            # A path such as /home/anna is no command.
            if name.startswith("/") and (name[1:] in COMMANDS or "/" not in name[1:]):
                await run_command(line.strip(), self._connection, self._screen, self._prompt, self._state)
            else:
                await self._talk(OutgoingMessage(line))
        except RemError as error:
            self.has_failed = True
            self._screen.error(str(error))

    async def _talk(self, message: OutgoingMessage) -> None:
        """Send a message, print the answer, and let the user answer its cards."""
        while True:
            turn = await self._stoppable(self._send(message))
            self._screen.end()
            self.has_failed = self.has_failed or turn is None or turn.has_failed
            if turn is None or not turn.cards or not self._prompt.is_interactive:
                return
            try:
                answer = await answer_card(turn.cards[-1], self._screen, self._prompt)
            except KeyboardInterrupt:
                return
            if answer is None:
                return
            message = OutgoingMessage("", card_answer=answer)

    async def _send(self, message: OutgoingMessage) -> TurnResult:
        state = self._state
        # Chosen here, so that the session continues if the first answer is stopped.
        state.session = state.session or str(uuid4())
        turn = TurnResult([])
        self._screen.begin()
        message = replace(message, session=state.session, agent=state.agent, model=state.model)
        async with aclosing(self._connection.send(message)) as events:
            async for event in events:
                self._screen.show(event)
                match event:
                    case MetadataEvent():
                        state.session = event.session_id or state.session
                        state.last_answer = event.message_id or state.last_answer
                    case ActionRequestEvent():
                        turn.cards.append(event.card)
                    case ErrorEvent():
                        turn.has_failed = True
        return turn

    async def _stoppable(self, work: Coroutine[None, None, TurnResult]) -> TurnResult | None:
        """Run a turn. Ctrl-C stops it and keeps the chat; then return None."""
        task = asyncio.create_task(work)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            self._screen.end()
            self._screen.note("Stopped. What was said so far is stored.")
            return None
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def complete(self, line: str) -> Sequence[str]:
        """Return what the last word of a line can become."""
        return await complete_line(line, self._connection)
