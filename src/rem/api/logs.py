"""Where the server's logs go: uvicorn's and REM's own in one form, on standard error."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from loguru import logger

if TYPE_CHECKING:
    from loguru import Record


def log_config(level: str) -> dict[str, Any]:
    """The logging of every process of a server, in the form that uvicorn hands to each of them."""
    handler = {"()": "rem.api.logs.Handler", "lowest": level.upper()}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"rem": handler},
        "loggers": {"uvicorn": {"handlers": ["rem"], "level": level.upper(), "propagate": False}},
    }


class Handler(logging.Handler):
    """Passes what uvicorn logs on to loguru, which it sets up first."""

    def __init__(self, lowest: str) -> None:
        super().__init__(lowest)
        logger.remove()
        # Variables stay out of tracebacks: they hold what users wrote.
        logger.add(sys.stderr, level=lowest, diagnose=False, backtrace=False, format=_format)

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record."""
        level = record.levelname if record.levelname in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL") else "DEBUG"
        logger.opt(exception=record.exc_info).log(level, "{}", record.getMessage())


def _format(record: Record) -> str:
    known = "".join(f" {name}={{extra[{name}]}}" for name in record["extra"])
    return f"{{time:YYYY-MM-DDTHH:mm:ss.SSSZ}} {{level}} {{message}}{known}\n{{exception}}"
