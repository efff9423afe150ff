"""Read what the user types: several lines, earlier messages, and completion of commands and names."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rem.errors import InvalidInputError

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    from rem.cli.chat.connection import NamedChoice

Complete: TypeAlias = Callable[[str], Awaitable[tuple[str, Sequence["NamedChoice"]]]]
"""Takes the line before the cursor, and returns its end that can be completed, and what that can become."""
LoadEarlier: TypeAlias = Callable[[], Awaitable[Sequence[str]]]
"""Returns earlier messages, oldest first."""
MAX_DESCRIPTION_CHARS = 60


class QuestionCancelledError(Exception):
    """The user answered a question with Ctrl-C. A KeyboardInterrupt would end the event loop."""


class Prompt(Protocol):
    """Where the messages of the user come from."""

    is_interactive: bool

    async def read(self, label: str = "> ") -> str | None:
        """Return the next message, or None at the end. Raise KeyboardInterrupt if the user gives up the line."""

    async def ask(self, label: str, given: str = "") -> str | None:
        """Return one line that answers a question, or None at the end. It is no message, and not kept.

        The line is `given` at first, and the user can change it. Raise QuestionCancelledError at Ctrl-C.
        """


class TerminalPrompt:
    """Reads from a terminal. Enter sends, Alt-Enter begins a new line, Tab completes."""

    is_interactive = True

    def __init__(self, complete: Complete, load_earlier: LoadEarlier) -> None:
        from prompt_toolkit import PromptSession

        self._session: PromptSession[str] = PromptSession(
            history=_make_history(load_earlier),
            completer=_make_completer(complete),
            complete_while_typing=False,
            multiline=True,
            key_bindings=_make_key_bindings(),
            prompt_continuation="  ",
        )
        self._questions: PromptSession[str] = PromptSession()

    async def read(self, label: str = "> ") -> str | None:
        """Return the next message, or None at the end. Raise KeyboardInterrupt if the user gives up the line."""
        try:
            return await self._session.prompt_async(label)
        except EOFError:
            return None

    async def ask(self, label: str, given: str = "") -> str | None:
        """Return one line that answers a question, or None at the end. It is no message, and not kept."""
        try:
            return await self._questions.prompt_async(label, default=given)
        except EOFError:
            return None
        except KeyboardInterrupt as error:
            raise QuestionCancelledError from error


class PipedPrompt:
    """Reads one message from each line of standard input."""

    is_interactive = False

    async def read(self, label: str = "") -> str | None:
        """Return the next line, or None at the end. Raise InvalidInputError if it is not UTF-8."""
        line = sys.stdin.buffer.readline()
        try:
            return line.decode().rstrip("\r\n") if line else None
        except UnicodeDecodeError as error:
            raise InvalidInputError("A line of standard input is not UTF-8 text.") from error

    async def ask(self, label: str, given: str = "") -> str | None:
        """Return the next line, or None at the end."""
        return await self.read()


def _make_history(load_earlier: LoadEarlier) -> History:
    from prompt_toolkit.history import InMemoryHistory

    class EarlierMessages(InMemoryHistory):
        """The messages of this chat, and earlier ones, which are loaded while the user types.

        They come from the memory and are kept nowhere else: what is forgotten there is forgotten here.
        """

        _loading: asyncio.Future[Sequence[str]] | None = None

        async def load(self) -> AsyncGenerator[str]:
            """Yield the messages, newest first: those of this chat at once."""
            known = list(self._loaded_strings)
            for text in known:
                yield text
            if not self._loaded:
                # A prompt that ends cancels this generator. The next one goes on waiting for the same messages.
                self._loading = self._loading or asyncio.ensure_future(load_earlier())
                earlier = await asyncio.shield(self._loading)
                # The first message of this chat may be stored already.
                older = [text for text in reversed(earlier) if text not in self._loaded_strings]
                self._loaded_strings += older
                self._loaded = True
                for text in older:
                    yield text

    return EarlierMessages()


def _make_key_bindings() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    bindings = KeyBindings()

    # What is typed during an answer arrives with Ctrl-J as its Enter.
    @bindings.add("enter")
    @bindings.add("c-j")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    @bindings.add("escape", "c-j")
    def begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


def _make_completer(complete: Complete) -> Completer:
    from prompt_toolkit.completion import Completer, Completion

    from rem.cli.output import shorten
    from rem.cli.terminal_text import escape_control_characters

    class NameCompleter(Completer):
        """Completes the last word of a line."""

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            return ()

        async def get_completions_async(
            self, document: Document, complete_event: CompleteEvent
        ) -> AsyncGenerator[Completion]:
            word, choices = await complete(document.current_line_before_cursor)
            for choice in choices:
                description = escape_control_characters(shorten(choice.description, MAX_DESCRIPTION_CHARS))
                yield Completion(choice.name, start_position=-len(word), display_meta=description or None)

    return NameCompleter()
