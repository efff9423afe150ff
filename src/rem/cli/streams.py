"""Standard output and error: UTF-8 whatever the locale, and no traceback when nobody takes the output."""

from __future__ import annotations

import io
import os
import sys


def set_up_streams() -> None:
    """Write UTF-8, since memories hold every script; output that is closed (`>&-`) goes nowhere."""
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def discard_output() -> None:
    """Drop what could not be written, so that the interpreter does not try it again at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
