"""Where the server's logs go: uvicorn's and REM's own in one form, on standard error."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import TYPE_CHECKING

from loguru import logger

if TYPE_CHECKING:
    from loguru import Record


class LogHandler(logging.Handler):
    """Passes what uvicorn logs on to loguru, which it sets up first. `rem serve` lets each process make one."""

    def __init__(self, lowest: str) -> None:
        super().__init__(lowest)
        logger.remove()
        # Variables stay out of tracebacks: they hold what users wrote.
        logger.add(sys.stderr, level=lowest, diagnose=False, backtrace=False, format=_format)

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record."""
        level = record.levelname if record.levelname in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL") else "DEBUG"
        failure = f": {describe_exception(record.exc_info[1])}" if record.exc_info and record.exc_info[1] else ""
        logger.log(level, "{}{}", record.getMessage(), failure)


def describe_exception(error: BaseException) -> str:
    """What kind of error it is and where it happened. Its message may quote what a user wrote, so it stays out."""
    return f"{type(error).__name__} in\n{''.join(traceback.format_tb(error.__traceback__))}".rstrip()


def _format(record: Record) -> str:
    known = "".join(f" {name}={{extra[{name}]}}" for name in record["extra"])
    return f"{{time:YYYY-MM-DDTHH:mm:ss.SSSZ}} {{level}} {{message}}{known}\n"
