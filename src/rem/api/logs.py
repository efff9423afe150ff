"""Logging of the server: uvicorn's messages and REM's own in one format, on standard error."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import TYPE_CHECKING

from loguru import logger

if TYPE_CHECKING:
    from loguru import Record


class LogHandler(logging.Handler):
    """Sets up loguru and passes uvicorn's log records to it. `rem serve` creates one in each server process."""

    def __init__(self, min_level: str) -> None:
        super().__init__(min_level)
        logger.remove()
        # Tracebacks must not show variables: they hold texts of users.
        logger.add(sys.stderr, level=min_level, diagnose=False, backtrace=False, format=_format_record)

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record."""
        level = record.levelname if record.levelname in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL") else "DEBUG"
        exception = f": {describe_exception(record.exc_info[1])}" if record.exc_info and record.exc_info[1] else ""
        logger.log(level, "{}{}", record.getMessage(), exception)


def describe_exception(error: BaseException) -> str:
    """Return the type and the traceback of an exception, without its message, which may quote texts of users."""
    return f"{type(error).__name__} in\n{''.join(traceback.format_tb(error.__traceback__))}".rstrip()


def _format_record(record: Record) -> str:
    fields = "".join(f" {name}={{extra[{name}]}}" for name in record["extra"])
    return f"{{time:YYYY-MM-DDTHH:mm:ss.SSSZ}} {{level}} {{message}}{fields}\n"
