"""Generate docs/cli.md from the help of the commands: `python -m tooling.command_reference`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from rem.cli.main import build_command
from rem.cli.terminal_text import echo


def render_reference() -> str:
    """Return the text of docs/cli.md: the help of every command."""
    parts = ["# The `rem` command", "`make docs` generates this page from the help of the commands."]
    for path, help_text in _list_commands(build_command(), "rem", None):
        parts.append(f"## `{path}`\n\n```text\n{help_text}\n```")
    return "\n\n".join(parts) + "\n"


def _list_commands(command: Any, name: str, parent: typer.Context | None) -> Iterator[tuple[str, str]]:
    """Yield every command with its help."""
    context = typer.Context(command, info_name=name, parent=parent, terminal_width=100, **command.context_settings)
    yield context.command_path, command.get_help(context).rstrip()
    for inner_name, inner in getattr(command, "commands", {}).items():
        yield from _list_commands(inner, inner_name, context)


if __name__ == "__main__":
    echo(render_reference(), nl=False)
