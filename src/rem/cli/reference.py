"""The command reference of the docs, made from the commands' own help: `python -m rem.cli.reference`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import typer.main
from typer.testing import CliRunner

from rem.cli.main import app


def render_reference() -> str:
    """`docs/cli.md`: the help of every command."""
    parts = ["# The `rem` command", "Made by `make docs` from the commands' own help; a test compares the two."]
    for path in _paths(typer.main.get_command(app), ()):
        help_text = CliRunner().invoke(app, [*path, "--help"], prog_name="rem", terminal_width=100).output.rstrip()
        parts.append(f"## `{' '.join(('rem', *path))}`\n\n```text\n{help_text}\n```")
    return "\n\n".join(parts) + "\n"


def _paths(command: Any, path: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every command, as the words behind `rem`."""
    yield tuple(path)
    for name, inner in getattr(command, "commands", {}).items():
        yield from _paths(inner, (*path, name))


if __name__ == "__main__":
    typer.echo(render_reference(), nl=False)
