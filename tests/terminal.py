"""Drive a program in a real terminal (a pty): type, and wait for what it prints."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.rem_command import Settings, start_rem

CTRL_C, CTRL_D, TAB, UP, ALT_ENTER, ENTER = "\x03", "\x04", "\t", "\x1b[A", "\x1b\r", "\r"
_ESCAPE = re.compile(r"\x1b\][^\x07]*\x07|\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>78]|\r")
_CURSOR_QUESTION = b"\x1b[6n"


class Terminal:
    """Runs `rem` in a terminal of a given size."""

    def __init__(self, *arguments: str, settings: Settings, columns: int = 80, lines: int = 24) -> None:
        self._arguments: Sequence[str] = arguments
        self._settings = {"TERM": "xterm-256color", **settings}
        self._size = struct.pack("HHHH", lines, columns, 0, 0)
        self._printed = ""
        self._read_to = 0

    def __enter__(self) -> Self:
        """Start the program."""
        self._terminal, program_side = pty.openpty()
        fcntl.ioctl(program_side, termios.TIOCSWINSZ, self._size)
        self.process = start_rem(
            *self._arguments,
            settings=self._settings,
            stdin=program_side,
            stdout=program_side,
            stderr=program_side,
            in_terminal=True,
        )
        os.close(program_side)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the program if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._terminal)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._terminal, text.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the terminal, as a person does with the mouse."""
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def wait_for(self, text: str, seconds: float = 60) -> str:
        """Wait until a text is printed after the last one that was waited for. Return all that came before it."""
        deadline = time.monotonic() + seconds
        while True:
            plain = _ESCAPE.sub("", self._printed)
            found = plain.find(text, self._read_to)
            if found >= 0:
                before = plain[self._read_to : found]
                self._read_to = found + len(text)
                return before
            if time.monotonic() > deadline or not self._read(deadline):
                raise AssertionError(f"{text!r} was not printed. Printed: {plain[self._read_to :]!r}")

    def wait_for_end(self) -> int:
        """Wait until the program ends. Return its exit code."""
        deadline = time.monotonic() + 60
        while self._read(deadline):
            pass
        return self.process.wait(30)

    @property
    def printed(self) -> str:
        """All that was printed, with its escape sequences."""
        return self._printed

    @property
    def text(self) -> str:
        """All that was printed, without colours and movements of the cursor."""
        return _ESCAPE.sub("", self._printed)

    @property
    def raw(self) -> str:
        """All that was printed, with colours and movements of the cursor."""
        return self._printed

    def _read(self, deadline: float) -> bool:
        """Read what is printed next. Return False at the end of the program."""
        ready, _, _ = select.select([self._terminal], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            return False
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # Linux reports the end of the program so
            return False
        if _CURSOR_QUESTION in data:
            os.write(self._terminal, b"\x1b[1;1R")
        self._printed += data.decode(errors="replace")
        return bool(data)
