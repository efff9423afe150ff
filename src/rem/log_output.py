"""Write the log of a server or a worker to standard error: lines for people, or JSON for programs."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Literal, TypeAlias

import orjson
from loguru import logger

from rem.log_scrubber import scrub_record

if TYPE_CHECKING:
    from loguru import Record

LogFormat: TypeAlias = Literal["text", "json"]


def log_to_stderr(min_level: str, log_format: LogFormat) -> None:
    """Log to standard error from now on, and nowhere else. Secrets are removed from messages."""
    logger.remove()
    logger.configure(patcher=scrub_record)
    # Tracebacks must not show variables: they hold texts of users.
    logger.add(
        sys.stderr,
        level=min_level,
        diagnose=False,
        backtrace=False,
        format=_format_as_json if log_format == "json" else _format_as_text,
    )


def describe_exception(error: BaseException) -> str:
    """Return the type and the traceback of an exception, without its message, which may quote texts of users."""
    return f"{type(error).__name__} in\n{''.join(traceback.format_tb(error.__traceback__))}".rstrip()


# loguru formats what these two return, so values are referred to: they may have braces.


def _format_as_text(record: Record) -> str:
    fields = "".join(f" {name}={{extra[{name}]}}" for name in record["extra"])
    line = f"{{time:YYYY-MM-DDTHH:mm:ss.SSSZ}} {{level}} {{message}}{fields}\n"
    if (error := _get_exception(record)) is None:
        return line
    record["extra"]["_traceback"] = describe_exception(error)
    return line + "{extra[_traceback]}\n"


def _format_as_json(record: Record) -> str:
    """Return one line of JSON. Its fields are those of the text form, and the module that logs."""
    error = _get_exception(record)
    line = {
        "time": record["time"].isoformat(timespec="milliseconds"),
        "level": record["level"].name,
        "message": record["message"],
        "module": record["name"],
        **record["extra"],
        **({} if error is None else {"traceback": describe_exception(error)}),
    }
    record["extra"]["_line"] = orjson.dumps(line, default=str).decode()
    return "{extra[_line]}\n"


def _get_exception(record: Record) -> BaseException | None:
    return record["exception"].value if record["exception"] else None
