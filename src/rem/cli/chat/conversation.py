"""The loop of a chat: read a message or a command, print the answer, stop it at Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import dataclass, replace
from uuid import uuid4

from rem.cli.chat.cards import answer_card
from rem.cli.chat.commands import COMMANDS, MESSAGE_COMMANDS, ChatState, run_command
from rem.cli.chat.connection import ChatConnection, OutgoingMessage
from rem.cli.chat.prompt import Prompt, QuestionCancelledError
from rem.cli.chat.screen import Screen
from rem.cli.output import without_echo
from rem.errors import InvalidInputError, RemError
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
        try:
            while not self._state.is_over:
                await self._take_turn()
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    async def _take_turn(self) -> None:
        """Read one message or command, and answer it."""
        try:
            line = await self._read()
        except KeyboardInterrupt:
            self._screen.note("Ctrl-D or /quit leaves the chat.")
            return
        except RemError as error:
            self._report(error)
            return
        if line is None:
            self._state.is_over = True
        elif line.strip():
            await self._handle(line)

    async def _read(self) -> str | None:
        try:
            return await self._prompt.read()
        finally:
            self._ignore_ctrl_c()

    def _ignore_ctrl_c(self) -> None:
        """Let Ctrl-C do nothing between two steps: the default would end the program.

        A prompt and a turn have handlers of their own, and remove the one that was set before.
        """
        if self._prompt.is_interactive:
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)

    async def _handle(self, line: str) -> None:
        name, *rest = line.strip().split(maxsplit=1)
        # `/forget TEXT` is a message, and `/forget` alone deletes the session.
        is_message = name[1:] in MESSAGE_COMMANDS and (name[1:] not in COMMANDS or bool(rest))
        try:
            # A path such as /home/anna is no command.
            if name.startswith("/") and not is_message and (name[1:] in COMMANDS or "/" not in name[1:]):
                await self._run_command(line.strip())
            else:
                await self._talk(OutgoingMessage(line))
        except RemError as error:
            self._report(error)
        except QuestionCancelledError:
            self._screen.note("Stopped.")

    def _report(self, error: RemError) -> None:
        self.has_failed = True
        self._screen.error(str(error))

    async def _run_command(self, line: str) -> None:
        command = run_command(line, self._connection, self._screen, self._prompt, self._state)
        if not await self._stoppable(command):
            self._screen.note("Stopped.")

    async def _talk(self, message: OutgoingMessage) -> None:
        """Send a message, print the answer, and let the user answer its cards."""
        cards = await self._answer(message)
        while cards and self._prompt.is_interactive:
            try:
                answer = await answer_card(cards[-1], self._screen, self._prompt)
            finally:
                self._ignore_ctrl_c()
            if answer is None:
                return
            if isinstance(answer, str):
                await self._handle(answer)
                return
            try:
                cards = await self._answer(OutgoingMessage("", card_answer=answer))
            except InvalidInputError as error:
                # Such as edited arguments that are not JSON: the card still waits for an answer.
                self._screen.error(str(error))

    async def _answer(self, message: OutgoingMessage) -> list[ActionCard]:
        """Send a message, print the answer, and return its cards. Ctrl-C stops it and keeps the chat."""
        turn = TurnResult([])
        try:
            is_complete = await self._stoppable(self._send(message, turn))
        finally:
            self._screen.end()
        if not is_complete:
            self._screen.note("Stopped. What was said so far is stored.")
        self.has_failed = self.has_failed or not is_complete or turn.has_failed
        return turn.cards if is_complete else []

    async def _send(self, message: OutgoingMessage, turn: TurnResult) -> None:
        state = self._state
        # Chosen here, so that the session continues if the first answer is stopped.
        state.session = state.session or str(uuid4())
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

    async def _stoppable(self, work: Coroutine[None, None, None]) -> bool:
        """Run a turn or a command. Return False if Ctrl-C has stopped it."""
        task = asyncio.create_task(work)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, task.cancel)
        try:
            with without_echo():
                await task
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            return False
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            self._ignore_ctrl_c()
        return True
