"""Print texts so that the terminal shows them and does nothing else: a stored text may have escape sequences."""

from __future__ import annotations

import typer

_CONTROL_CODES = (*range(9), *range(11, 32), *range(127, 160))
_DIRECTION_CODES = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""They change the order in which a terminal shows characters, also those behind the text."""
CONTROL_ESCAPES = {
    **{code: f"\\x{code:02x}" for code in _CONTROL_CODES},
    **{code: f"\\u{code:04x}" for code in _DIRECTION_CODES},
}
"""Tabs and line breaks are kept."""
JSON_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(127, 160), *_DIRECTION_CODES)}
"""The control characters that JSON may have as they are. They occur in its texts only."""


def escape_control_characters(text: str) -> str:
    """Return the text with its control characters written as escapes, such as `\\x1b`."""
    return text.replace("\r\n", "\n").translate(CONTROL_ESCAPES)


def echo(message: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a message; with `err` on standard error. Its control characters are shown as escapes."""
    typer.echo(escape_control_characters(message), err=err, nl=nl)
