"""Print the events of an answer: Markdown while it arrives, tool calls, progress, sources and errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from rem.cli.output import get_output_width, shorten
from rem.cli.terminal_text import escape_control_characters
from rem.events import (
    ActionRequestEvent,
    ErrorEvent,
    MetadataEvent,
    ProgressEvent,
    ReasoningEvent,
    TextEvent,
    ToolCallEvent,
)

if TYPE_CHECKING:
    from rem.events import AnyEvent

MAX_ARGUMENT_CHARS = 120
MIN_DESCRIPTION_WIDTH = 34
REFRESHES_PER_SECOND = 12
_FENCE = re.compile(r"^ {0,3}(```|~~~)")


class Screen:
    """Prints one chat. On a terminal it renders Markdown; in a pipe it prints the text as it is."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, width=get_output_width())
        self.is_terminal = self.console.is_terminal
        self.reasoning: list[str] = []
        """The reasoning of the last answer, which is shown only on request."""
        self._stream: MarkdownStream | None = None

    def show(self, event: AnyEvent) -> None:
        """Print one event of the answer."""
        match event:
            case TextEvent():
                self._show_text(event.content)
            case ReasoningEvent():
                if not self.reasoning:
                    self.note("thinking …")
                self.reasoning.append(event.content)
            case ToolCallEvent(status="started"):
                arguments = ", ".join(f"{name}={value!r}" for name, value in (event.arguments or {}).items())
                self.note(f"{event.agent or 'agent'}: {event.tool_name}({shorten(arguments, MAX_ARGUMENT_CHARS)})")
            case ToolCallEvent(status="failed"):
                self.note(f"{event.agent or 'agent'}: {event.tool_name} failed")
            case ProgressEvent(status="in_progress"):
                self.note(f"[{event.step}/{event.total_steps}] {event.label}")
            case MetadataEvent():
                self._show_metadata(event)
            case ErrorEvent():
                self.error(event.message)
            case ActionRequestEvent():
                self._finish_text()

    def begin(self) -> None:
        """Forget the reasoning of the answer before."""
        self.reasoning.clear()

    def end(self) -> None:
        """Print what is left of the text, and an empty line."""
        self._finish_text()
        self.console.print()

    def say(self, text: str = "") -> None:
        """Print a text of the chat itself."""
        self._finish_text()
        self.console.print(Text(escape_control_characters(text)))

    def note(self, text: str) -> None:
        """Print what happens in the background, dimmed. In a pipe it is left out: the answer is what counts there."""
        if self.is_terminal:
            self.console.print(Text(escape_control_characters(f"· {text}"), style="dim"))

    def error(self, text: str) -> None:
        """Print an error."""
        self._finish_text()
        self.console.print(Text(escape_control_characters(f"Error: {text}"), style="red"))

    def markdown(self, text: str) -> None:
        """Print a stored text."""
        self._finish_text()
        text = escape_control_characters(text)
        self.console.print(Markdown(text) if self.is_terminal else Text(text))

    def list_lines(self, lines: Sequence[tuple[str, str]]) -> None:
        """Print pairs of a name and a description in two columns; on a narrow terminal, the description below."""
        width = max((len(name) for name, _ in lines), default=0)
        is_narrow = self.console.width - width < MIN_DESCRIPTION_WIDTH
        indent = " " * (4 if is_narrow else width + 4)
        for name, description in lines:
            text = Text(escape_control_characters(f"  {name}\n{indent}" if is_narrow else f"  {name:<{width}}  "))
            plain = Text(escape_control_characters(" ".join(description.split())))
            wrapped = plain.wrap(self.console, self.console.width - len(indent))
            text.append(f"\n{indent}".join(line.plain.rstrip() for line in wrapped))
            self.console.print(text, soft_wrap=True)

    def _show_text(self, text: str) -> None:
        text = escape_control_characters(text)
        if not self.is_terminal:
            self.console.out(text, end="", highlight=False)
            self.console.file.flush()
            return
        if self._stream is None:
            self._stream = MarkdownStream(self.console)
        self._stream.add(text)

    def _show_metadata(self, event: MetadataEvent) -> None:
        if event.hidden or not self.is_terminal:
            return
        parts = [f"sources: {', '.join(event.sources)}"] if event.sources else []
        if event.confidence is not None:
            parts.append(f"confidence {event.confidence:.0%}")
        if parts:
            self._finish_text()
            self.note(", ".join(parts))

    def _finish_text(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        elif not self.is_terminal:
            self.console.file.flush()


class MarkdownStream:
    """Renders Markdown while it arrives: it prints finished blocks, and draws the last one again with each part."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rest = ""
        self._has_printed = False
        self._live = Live(
            console=console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
            get_renderable=lambda: _LastLines(self._rest),
        )
        self._live.start()

    def add(self, text: str) -> None:
        """Add a part of the text."""
        self._rest += text
        end = find_block_end(self._rest)
        if end:
            finished, self._rest = self._rest[:end], self._rest[end:]
            self._print(finished)

    def close(self) -> None:
        """Print what is left."""
        rest, self._rest = self._rest, ""
        self._live.stop()
        self._print(rest)

    def _print(self, text: str) -> None:
        if not text.strip():
            return
        if self._has_printed:
            self._console.print()
        self._has_printed = True
        self._console.print(Markdown(text))


class _LastLines:
    """The end of an unfinished block, as far as it fits the terminal: what is higher could not be drawn again."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the last lines."""
        lines = console.render_lines(Markdown(self._text), options.update(height=None), pad=False)
        for line in lines[-max(console.height - 2, 1) :]:
            yield from line
            yield Segment.line()


def find_block_end(text: str) -> int:
    """Return where the finished blocks of a Markdown text end: after the last empty line outside of a code block."""
    end = position = 0
    is_code = False
    for line in text.splitlines(keepends=True):
        position += len(line)
        if _FENCE.match(line):
            is_code = not is_code
        if not is_code and not line.strip() and line.endswith("\n"):
            end = position
    return end
