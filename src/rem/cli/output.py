"""How data is printed: tables for people, JSON for programs, bars for what takes long."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def print_json(data: Any) -> None:
    """One JSON document on standard output."""
    import orjson
    from pydantic_core import to_jsonable_python

    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    sys.stdout.buffer.write(orjson.dumps(to_jsonable_python(data), option=options))
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, err: bool = False) -> None:
    """Rows under their headings, numbers to the right; with `err` on standard error."""
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
def progress_bar(label: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on a terminal's standard error; call what it yields with how much is done, and of how much."""
    from loguru import logger
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=None)

        def on_rows(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=total)
            logger.debug("{}: {} rows{}", label, done, f" of {total}" if total else "")

        yield on_rows


@dataclass(frozen=True, slots=True)
class ByteSize:
    """A number of bytes, as people say it."""

    size: int

    def __str__(self) -> str:
        amount = float(self.size)
        for unit in ("B", "KB", "MB", "GB"):
            if amount < 1024:
                return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
            amount /= 1024
        return f"{amount:.1f} TB"


def format_count(number: int, noun: str) -> str:
    """A number of things: 1 row, 2 rows."""
    return f"{number} {noun if number == 1 else noun + 's'}"


def shorten(text: str, longest: int) -> str:
    """The text, or its first words with a mark that there is more."""
    if len(text) <= longest:
        return text
    cut = text[:longest]
    return f"{(cut[:-1].rpartition(' ')[0] or cut[:-1]).rstrip()}…"


def format_command(*words: str, user: str | None = None, tenant: str = "default") -> str:
    """A call of `rem`, in the memory that this call was about."""
    scope = (["--user", user] if user is not None else []) + (["--tenant", tenant] if tenant != "default" else [])
    return f"{_program_name()} {shlex.join([*words, *scope])}"


def _program_name() -> str:
    if shutil.which("rem"):
        return "rem"
    called_by = Path(sys.argv[0])
    if called_by.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m rem"
    return shlex.quote(sys.argv[0])
