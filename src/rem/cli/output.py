"""Print results: tables for people, JSON for programs, progress bars; format numbers, texts and commands."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rem.cli.runtime import SHARED, get_default_user
from rem.cli.terminal_text import JSON_ESCAPES, echo, escape_control_characters
from rem.errors import InvalidInputError

OnProgress: TypeAlias = Callable[[int, int | None], None]
"""Takes the number of things that are done, and how many there are, or None."""
if TYPE_CHECKING:
    from rich.console import Console

UNLIMITED_WIDTH = 10_000
COLUMN_GAP = 3
MIN_LAST_COLUMN_WIDTH = 20
MAX_WORD_CHARS = 30
_LIST_MARKER = re.compile(r" *+(?:(?:[-*+]|\d{1,3}[.)]) +|(?<= ))")


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Raise InvalidInputError instead of an error of the file system."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}. Choose another place.") from error


def check_folder(folder: Path) -> None:
    """Make a folder if there is none. Raise InvalidInputError if no file can be written there."""
    from tempfile import TemporaryFile

    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass


def print_json(data: Any) -> None:
    """Print one JSON document on standard output."""
    import orjson
    from pydantic_core import to_jsonable_python

    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    text = orjson.dumps(to_jsonable_python(data), option=options).decode()
    sys.stdout.buffer.write(text.translate(JSON_ESCAPES).encode())
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, err: bool = False) -> None:
    """Print a table with numbers aligned right; with `err` on standard error.

    If it does not fit the terminal, print one line for each field instead: a wrapped key cannot be copied.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(stderr=err, width=get_output_width(err=err))
    cells = [["" if cell is None else escape_control_characters(str(cell)) for cell in row] for row in rows]
    if not fits_width(console.width, [columns, *cells]):
        print_records(console, columns, cells)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(columns):
        is_number = all(isinstance(row[position], int | ByteSize) for row in rows)
        table.add_column(column, justify="right" if is_number else "left")
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def get_output_width(*, err: bool = False) -> int | None:
    """Return the width of tables: None for that of the terminal. In a file or pipe nothing is wrapped or cut."""
    stream = sys.stderr if err else sys.stdout
    return None if stream.isatty() or "COLUMNS" in os.environ else UNLIMITED_WIDTH


def fits_width(width: int, lines: Sequence[Sequence[str]]) -> bool:
    """Return whether the last column has enough space if no other column is wrapped."""
    from rich.cells import cell_len

    last_width = max(cell_len(line[-1]) for line in lines)
    return get_last_width(width, lines) >= min(last_width, MIN_LAST_COLUMN_WIDTH)


def get_last_width(width: int, lines: Sequence[Sequence[str]]) -> int:
    """Return the width that is left for the last column if no other column is wrapped."""
    from rich.cells import cell_len

    other_columns = list(zip(*lines, strict=True))[:-1]
    return width - sum(max(map(cell_len, column)) + COLUMN_GAP for column in other_columns) - 2


def print_records(console: Console, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Print one line for each field, and an empty line between records."""
    from rich.cells import cell_len
    from rich.text import Text

    names = [escape_control_characters(column) for column in columns]
    widest = max(map(cell_len, names))
    for number, row in enumerate(cells):
        if number:
            console.print()
        for name, cell in zip(names, row, strict=True):
            line = f"{name}{' ' * (widest - cell_len(name))}  {escape_control_characters(cell)}".rstrip()
            console.print(Text(line), soft_wrap=True)


def print_wrapped(text: str, *, indent: str = "", err: bool = False) -> None:
    """Print a line; on a terminal, break it between words, and indent its further lines with `indent`.

    Line breaks of the text stay. A word that is longer than a line, such as a key, is not broken.
    """
    for line in wrap_lines(text, get_line_width(err=err), indent):
        echo(line, err=err)


def get_line_width(*, err: bool = False) -> int | None:
    """Return the width of the terminal; None in a file or pipe, where lines are not broken."""
    return shutil.get_terminal_size().columns if get_output_width(err=err) is None else None


def wrap_lines(text: str, width: int | None, indent: str = "") -> list[str]:
    """Return the lines of a text, broken between words, with `indent` before the further lines of each."""
    if width is None:
        return text.split("\n")
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return [part for line in text.split("\n") for part in wrapper.wrap(line) or [""]]


class WrappingWriter:
    """Writes a text to standard output while it arrives in pieces, and breaks its lines between words.

    The further lines of a list item are indented. Lines inside of fenced code are not broken.
    """

    def __init__(self, width: int | None) -> None:
        """Create a writer. Without a width, no line is broken."""
        self._width = width
        self._word = ""
        self._spaces = ""
        """Written with the next word: a broken line does not end with them."""
        self._line = ""
        self._is_code = False
        self._is_empty = True

    def write(self, text: str) -> None:
        """Write the words of the text that are complete."""
        for character in escape_control_characters(text):
            if character == "\n":
                self._write_word()
                self._write_raw(f"{self._spaces}\n")
                self._line = self._spaces = ""
            elif character == " ":
                self._write_word()
                self._spaces += character
            else:
                self._word += character
        sys.stdout.flush()

    def close(self) -> None:
        """Write the last word, and end the line. Print nothing if nothing was written."""
        self._write_word()
        if not self._is_empty:
            self._write_raw(f"{self._spaces}\n")
        sys.stdout.flush()

    def _write_word(self) -> None:
        if not self._word:
            return
        if not self._line.strip() and self._word.startswith("```"):
            self._is_code = not self._is_code
        if self._line.strip() and not self._is_code and self._is_too_long():
            marker = _LIST_MARKER.match(self._line)
            self._spaces = " " * len(marker.group()) if marker else ""
            self._write_raw("\n")
            self._line = ""
        self._write_raw(f"{self._spaces}{self._word}")
        self._word = self._spaces = ""

    def _is_too_long(self) -> bool:
        from rich.cells import cell_len

        return self._width is not None and cell_len(self._line + self._spaces + self._word) > self._width

    def _write_raw(self, text: str) -> None:
        self._line += text
        self._is_empty = self._is_empty and not text
        sys.stdout.write(text)


@contextmanager
def progress_bar(label: str) -> Iterator[OnProgress]:
    """Show a progress bar on standard error if that is a terminal. Yield a function `(done, total or None)`."""
    with progress_bars(label) as (on_progress,):
        yield on_progress


@contextmanager
def without_echo() -> Iterator[None]:
    """Keep keys that are pressed in the block, Ctrl-C included, from appearing in what is drawn. A prompt gets them."""
    # A process in the background would be stopped if it changed the terminal.
    if not sys.stdin.isatty() or os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    quiet = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextmanager
def progress_bars(*labels: str, line_seconds: float | None = None) -> Iterator[list[OnProgress]]:
    """Show progress bars on standard error if that is a terminal, else print a line every `line_seconds`, if given.

    Yield a function `(done, total or None)` for each label.
    """
    from loguru import logger
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    lines = None if console.is_terminal or line_seconds is None else _ProgressLines(line_seconds)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def make_function(label: str) -> OnProgress:
            task = progress.add_task(label, total=None)

            def on_progress(done: int, total: int | None) -> None:
                progress.update(task, completed=done, total=total)
                logger.debug("{}: {} rows{}", label, done, f" of {total}" if total else "")
                if lines is not None:
                    lines.update(label, done, total)

            return on_progress

        yield [make_function(label) for label in labels]


class _ProgressLines:
    """Prints progress as lines on standard error, for logs and pipes."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._counts: dict[str, str] = {}
        self._printed_at = time.monotonic()

    def update(self, label: str, done: int, total: int | None) -> None:
        """Note a new count, and print all of them if the last line was some time ago."""
        self._counts[label] = f"{label}: {done:,} of {total:,}" if total else f"{label}: {done:,}"
        if time.monotonic() - self._printed_at >= self._seconds:
            self._printed_at = time.monotonic()
            print(", ".join(self._counts.values()), file=sys.stderr, flush=True)  # noqa: T201


@dataclass(frozen=True, slots=True)
class ByteSize:
    """A number of bytes that prints as 1.5 MB."""

    size: int

    def __str__(self) -> str:
        amount = float(self.size)
        for unit in ("B", "KB", "MB", "GB"):
            if amount < 1024:
                return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
            amount /= 1024
        return f"{amount:.1f} TB"


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 row, 2 rows."""
    return f"{number} {noun if number == 1 else noun + 's'}"


def format_table_count(number: int, table: str) -> str:
    """Return a number with the name of a table, whose rows it counts: 1 message, 2 ontologies."""
    if number != 1 or not table.endswith("s"):
        return f"{number} {table}"
    return f"1 {table[:-3]}y" if table.endswith("ies") else f"1 {table[:-1]}"


def shorten(text: str, max_chars: int) -> str:
    """Return the text, or its first words and `…` if it is longer than `max_chars`."""
    if len(text) <= max_chars:
        return text
    cut = text[: max_chars - 1]
    words, _, part = cut.rpartition(" ")
    # A key or a text in a script without spaces is cut anywhere.
    return f"{(words if words and len(part) <= MAX_WORD_CHARS else cut).rstrip()}…"


def format_command(*words: str, user: str | None = None, tenant: str = "default") -> str:
    """Return a command line that can be typed as it is, with --user and --tenant if they are not the defaults."""
    scope = _user_option(user) + (["--tenant", tenant] if tenant != "default" else [])
    return f"{_program_name()} {shlex.join([*words, *scope])}"


def _user_option(user: str | None) -> list[str]:
    if user is not None:
        return ["--user", user]
    return ["--user", SHARED] if get_default_user() is not None else []


def _program_name() -> str:
    if shutil.which("rem"):
        return "rem"
    called_as = Path(sys.argv[0])
    if called_as.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m rem"
    return shlex.quote(sys.argv[0])
