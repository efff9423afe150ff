"""Generate docs/cli.md from the help of the commands: `python -m rem.cli.command_reference`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import typer.main
from typer.testing import CliRunner

from rem.cli.main import app
from rem.cli.terminal_text import echo


def render_reference() -> str:
    """Return the text of docs/cli.md: the help of every command."""
    parts = ["# The `rem` command", "`make docs` generates this page from the help of the commands."]
    for path in _list_commands(typer.main.get_command(app), ()):
        help_text = CliRunner().invoke(app, [*path, "--help"], prog_name="rem", terminal_width=100).output.rstrip()
        parts.append(f"## `{' '.join(('rem', *path))}`\n\n```text\n{help_text}\n```")
    return "\n\n".join(parts) + "\n"


def _list_commands(command: Any, path: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield every command, as the words after `rem`."""
    yield tuple(path)
    for name, inner in getattr(command, "commands", {}).items():
        yield from _list_commands(inner, (*path, name))


if __name__ == "__main__":
    echo(render_reference(), nl=False)
