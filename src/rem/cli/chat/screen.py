"""Print the events of an answer: Markdown while it arrives, tool calls, progress, sources and errors."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from rem.cli.output import get_output_width, shorten
from rem.cli.runtime import print_to_stderr
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
from rem.text import shorten_message_key

if TYPE_CHECKING:
    from rem.events import AnyEvent

MAX_ARGUMENT_CHARS = 120
MIN_DESCRIPTION_WIDTH = 34
REFRESHES_PER_SECOND = 12
_METADATA_TOOL = "register_metadata"
"""What this tool is called with is shown below the answer, so its call is not."""
_FENCE = re.compile(r"^ {0,3}(```|~~~)")


class LockedConsole(Console):
    """A console that one thread at a time prints on.

    Otherwise the line below an answer can be drawn after another thread has decided that there is none to erase.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.printing = threading.RLock()

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as a `Console` does."""
        with self.printing:
            super().print(*objects, **options)


class Screen:
    """Prints one chat. On a terminal it renders Markdown; in a pipe it prints the text as it is."""

    def __init__(self, console: LockedConsole | None = None) -> None:
        self.console = console or LockedConsole(highlight=False, width=get_output_width())
        self.is_terminal = self.console.is_terminal
        self.reasoning: list[str] = []
        """The reasoning of the last answer, which is shown only on request."""
        self._view: AnswerView | None = None
        self._answer = ""
        self._sources: list[str] = []
        self._confidence: float | None = None

    def show(self, event: AnyEvent) -> None:
        """Print one event of the answer."""
        if not isinstance(event, ReasoningEvent):
            self._end_reasoning()
        match event:
            case TextEvent():
                self._show_text(event.content)
            case ReasoningEvent():
                self._show_reasoning(event.content)
            case ToolCallEvent():
                self._show_tool_call(event)
            case ProgressEvent(status="in_progress"):
                if self._view is None or not self._view.is_running(event.label.removeprefix("Running ")):
                    self.note(f"[{event.step}/{event.total_steps}] {event.label}")
            case MetadataEvent(hidden=False):
                self._sources = event.sources or self._sources
                self._confidence = self._confidence if event.confidence is None else event.confidence
            case ErrorEvent():
                self.error(event.message)
            case ActionRequestEvent():
                self._finish_text()

    def begin(self) -> None:
        """Begin an answer: forget the reasoning of the one before, and show that something happens."""
        self.reasoning.clear()
        self._answer, self._sources, self._confidence = "", [], None
        if self.is_terminal:
            self._view = AnswerView(self.console)

    def end(self) -> None:
        """Print what is left of the text, its sources, and an empty line."""
        self._end_reasoning()
        if self._view is not None:
            self._view.close()
            self._view = None
        self._show_metadata()
        self.console.print()

    def say(self, text: str = "") -> None:
        """Print a text of the chat itself."""
        self._finish_text()
        self.console.print(Text(escape_control_characters(text)))

    def note(self, text: str) -> None:
        """Print what happens in the background, dimmed. In a pipe it is left out: the answer is what counts there."""
        if self.is_terminal:
            self._finish_text()
            self.console.print(Text(escape_control_characters(f"· {text}"), style="dim"))

    def error(self, text: str) -> None:
        """Print an error; in a pipe on standard error."""
        self._finish_text()
        if not self.is_terminal:
            print_to_stderr(f"Error: {escape_control_characters(text)}")
            return
        self.console.print(Text(escape_control_characters(f"Error: {text}"), style="red"))

    def markdown(self, text: str) -> None:
        """Print a stored text."""
        self._finish_text()
        text = escape_control_characters(text)
        self.console.print(MarkdownBlock(text) if self.is_terminal else Text(text))

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
        self._answer += text
        text = escape_control_characters(text)
        if not self.is_terminal:
            self.console.out(text, end="", highlight=False)
            self.console.file.flush()
            return
        if self._view is None:
            self._view = AnswerView(self.console)
        self._view.add(text)

    def _show_reasoning(self, text: str) -> None:
        """Keep the reasoning. While it arrives, only its duration is shown."""
        self.reasoning.append(text)
        if self._view is not None:
            self._view.is_thinking = True

    def _end_reasoning(self) -> None:
        if self._view is not None and self._view.is_thinking:
            self._view.is_thinking = False
            self.note(f"thought for {self._view.seconds:.0f} s; /reasoning shows it")

    def _show_tool_call(self, event: ToolCallEvent) -> None:
        """Print a call when it begins or fails, and show it with its duration as long as it runs."""
        label = f"{event.agent or 'agent'}: {event.tool_name}"
        if event.status == "started" and event.tool_name != _METADATA_TOOL:
            arguments = ", ".join(f"{name}={value!r}" for name, value in (event.arguments or {}).items())
            self.note(f"{label}({shorten(arguments, MAX_ARGUMENT_CHARS)})")
        elif event.status == "failed":
            self.note(f"{label} failed")
        if self._view is not None:
            self._view.mark_running(event.tool_id, label if event.status == "started" else None)

    def _show_metadata(self) -> None:
        """Print the sources that the answer does not name itself, and its confidence."""
        unnamed = [source for source in self._sources if source not in self._answer]
        sources = [key for key in map(shorten_message_key, unnamed) if key not in self._answer]
        parts = [f"sources: {', '.join(sources)}"] if sources else []
        if self._confidence is not None:
            parts.append(f"confidence {self._confidence:.0%}")
        if parts:
            self.note(", ".join(parts))

    def _finish_text(self) -> None:
        if self._view is not None:
            self._view.finish_text()
        elif not self.is_terminal:
            self.console.file.flush()


class AnswerView:
    """Shows an answer while it arrives.

    Finished blocks of Markdown are printed. Below them the last block is drawn again with each part, and a line says
    what the answer waits for: the model, or the calls that run.
    """

    def __init__(self, console: LockedConsole) -> None:
        self._console = console
        self._rest = ""
        self._has_printed = False
        self._started = monotonic()
        self._running: dict[str, tuple[str, float]] = {}
        self._spinner = Spinner("dots", style="dim")
        self.is_thinking = False
        # A view that is rendered anew each time: a print draws it again, and must not draw what it just printed.
        self._live = Live(self, console=console, auto_refresh=False, transient=True)
        self._live.start()
        self._closed = threading.Event()
        self._drawing = threading.Thread(target=self._draw, name="answer view", daemon=True)
        self._drawing.start()

    @property
    def seconds(self) -> float:
        """The duration of the answer so far."""
        return monotonic() - self._started

    def add(self, text: str) -> None:
        """Add a part of the text."""
        self._rest += text
        end = find_block_end(self._rest)
        if end:
            finished, self._rest = self._rest[:end], self._rest[end:]
            self._print(finished)

    def mark_running(self, call_id: str, label: str | None) -> None:
        """Show a call as running; without a label it has ended."""
        with self._console.printing:
            if label is None:
                self._running.pop(call_id, None)
            else:
                self._running[call_id] = label, monotonic()

    def is_running(self, tool_name: str) -> bool:
        """Return whether a call of this tool is shown as running."""
        return any(label.endswith(f": {tool_name}") for label, _ in self._running.values())

    def draw(self) -> None:
        """Draw the unfinished block and the line below it."""
        with self._console.printing:
            self._live.refresh()

    def finish_text(self) -> None:
        """Print what is left of the text."""
        rest, self._rest = self._rest, ""
        self._print(rest)

    def close(self) -> None:
        """Print what is left of the text, and remove the line below it."""
        self._closed.set()
        self._drawing.join()
        rest, self._rest = self._rest, ""
        # In this order, as in `draw`: `stop` takes the lock of the live display, and then prints.
        with self._console.printing:
            self._live.stop()
        self._print(rest)

    def _draw(self) -> None:
        while not self._closed.wait(1 / REFRESHES_PER_SECOND):
            self.draw()

    def _print(self, text: str) -> None:
        if not text.strip():
            return
        if self._has_printed:
            self._console.print()
        self._has_printed = True
        self._console.print(MarkdownBlock(text))

    def __rich__(self) -> Group:
        """Return the unfinished block and the line below it."""
        parts: list[RenderableType] = (
            [MarkdownBlock(self._rest, self._console.height - 3)] if self._rest.strip() else []
        )
        status = self._describe_state()
        if status:
            self._spinner.update(
                text=Text(escape_control_characters(status), style="dim", no_wrap=True, overflow="ellipsis")
            )
            parts.append(self._spinner)
        return Group(*parts)

    def _describe_state(self) -> str:
        """Return what the answer waits for; nothing while text arrives."""
        if self._running:
            return ", ".join(f"{label} {monotonic() - since:.0f} s" for label, since in self._running.values())
        if self.is_thinking:
            return f"thinking {self.seconds:.0f} s"
        return "" if self._rest else f"waiting for the model {self.seconds:.0f} s"


class MarkdownBlock:
    """A Markdown text without the empty lines that Rich prints around lists and tables.

    With `max_lines` only its end is shown, as far as it fits the terminal: what is higher could not be drawn again.
    """

    def __init__(self, text: str, max_lines: int | None = None) -> None:
        # Not every terminal can open the address behind a word: it is printed.
        self._markdown = Markdown(text, hyperlinks=False)
        self._max_lines = max_lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the lines."""
        lines = console.render_lines(self._markdown, options.update(height=None), pad=False)
        filled = [number for number, line in enumerate(lines) if any(map(_is_visible, line))]
        lines = lines[filled[0] : filled[-1] + 1] if filled else []
        for line in lines if self._max_lines is None else lines[-max(self._max_lines, 1) :]:
            yield from line
            yield Segment.line()


def _is_visible(segment: Segment) -> bool:
    # Code has a background, also in its empty lines.
    return bool(segment.text.strip()) or (segment.style is not None and segment.style.bgcolor is not None)


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
