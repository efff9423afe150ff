"""Print results: tables for people, JSON for programs, progress bars; format numbers, texts and commands."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rem.cli.runtime import SHARED, get_default_user

OnProgress: TypeAlias = Callable[[int, int | None], None]
"""Takes the number of things that are done, and how many there are, or None."""
# A stored escape sequence must not reach the terminal. Tabs and line breaks are kept.
CONTROL_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}


def print_json(data: Any) -> None:
    """Print one JSON document on standard output."""
    import orjson
    from pydantic_core import to_jsonable_python

    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    sys.stdout.buffer.write(orjson.dumps(to_jsonable_python(data), option=options))
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, err: bool = False) -> None:
    """Print a table with numbers aligned right; with `err` on standard error."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(columns):
        is_number = all(isinstance(row[position], int | ByteSize) for row in rows)
        table.add_column(column, justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    Console(stderr=err).print(table)


@contextmanager
def progress_bar(label: str) -> Iterator[OnProgress]:
    """Show a progress bar on standard error if that is a terminal. Yield a function `(done, total or None)`."""
    with progress_bars(label) as (on_progress,):
        yield on_progress


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


def shorten(text: str, max_chars: int) -> str:
    """Return the text, or its first words and `…` if it is longer than `max_chars`."""
    if len(text) <= max_chars:
        return text
    cut = text[:max_chars]
    return f"{(cut[:-1].rpartition(' ')[0] or cut[:-1]).rstrip()}…"


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


def escape_control_characters(text: str) -> str:
    """Return the text with its control characters written as escapes, such as `\\x1b`."""
    return text.translate(CONTROL_ESCAPES)
