"""Run one attempt at a job, and decide how it ends."""

from __future__ import annotations

import asyncio
import random
import re
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson
from loguru import logger
from pydantic import BaseModel, SecretStr

from rem.errors import (
    DeletedError,
    FetchForbiddenError,
    ImmutableError,
    InvalidInputError,
    MemoryDisabledError,
    NotFoundError,
    RemError,
    SettingsError,
)
from rem.jobs.job_process import ProcessLostError, run_in_own_process
from rem.jobs.queue import Job, JobFailure
from rem.settings import Settings
from rem.text import clean_text

if TYPE_CHECKING:
    from rem.jobs.handlers import Handler, HandlerContext


_FINAL_ERRORS = (InvalidInputError, NotFoundError, SettingsError, MemoryDisabledError, ImmutableError, DeletedError)
"""A retry would fail in the same way, because the input of the job is wrong."""
MAX_LOSSES = 2
"""A job is dead when this many processes have ended or frozen while they ran it."""
MAX_MESSAGE_CHARS = 2000
MAX_CODE_LINES = 5
_PASSWORD = re.compile(r"(?<=://)([^\s/@:]*):[^\s/@]*@")
MIN_SECRET_CHARS = 4
"""Shorter secrets would redact ordinary words."""
MAX_RETRY_DELAY_SECONDS = 3600.0
OTHER_SERVER_DELAY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended."""

    outcome: Literal["done", "dead", "queued"]
    """`queued`: the job runs again."""
    delay_seconds: float = 0.0
    attempts: int = 0
    """The number of attempts that it used up: 0 or 1."""
    losses: int = 0
    failure: JobFailure | None = None
    is_for_others: bool = False
    """Only another worker can do the job."""

    @property
    def error(self) -> str | None:
        """Return the failure as JSON."""
        return None if self.failure is None else orjson.dumps(asdict(self.failure)).decode()


async def run_attempt(context: HandlerContext, job: Job, handler: Handler) -> End:
    """Run a handler once, and return how it ended, unless this is cancelled.

    A job that a process ended or froze with runs in a process of its own: it takes no other job along, and no other
    job takes it along.
    """
    started = time.perf_counter()
    with logger.contextualize(job_id=job.id):
        try:
            if job.losses:
                await run_in_own_process(context.settings, handler, job.payload)
            else:
                await handler(context, job.payload)
        except Exception as error:  # noqa: BLE001  # an error of a handler ends the job, not the worker
            return _handle_failure(context.settings, job, error)
        logger.info("Job {} ({}) took {:.2f} s.", job.id, job.kind, time.perf_counter() - started)
        return End("done")


def _handle_failure(settings: Settings, job: Job, error: Exception) -> End:
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        return End("queued")
    if isinstance(error, FetchForbiddenError):
        # A server with other INGEST settings accepted the file, and will take the job.
        logger.info("Job {} ({}) is left to a server that may read its source.", job.id, job.kind)
        return End("queued", OTHER_SERVER_DELAY_SECONDS, is_for_others=True)
    losses = int(isinstance(error, ProcessLostError))
    failure = describe_loss(job.losses + 1) if losses else describe_failure(error, settings)
    attempt = job.attempts + 1
    if (
        isinstance(unwrap_error(error), _FINAL_ERRORS)
        or attempt >= settings.worker.attempts
        or job.losses + losses >= MAX_LOSSES
    ):
        logger.error(
            "Job {} ({}) is dead after attempt {} ({}): see `rem jobs show {}`.",
            *(job.id, job.kind, attempt, failure.kind, job.id),
        )
        return End("dead", attempts=1, losses=losses, failure=failure)
    # Doubled for each retry, and random so that jobs that failed together are spread.
    delay = min(settings.worker.retry_seconds * 2.0 ** min(job.attempts, 30), MAX_RETRY_DELAY_SECONDS)
    delay *= random.uniform(0.8, 1.2)  # noqa: S311  # no secret
    # The message may contain data of the user, so it is stored with the job and not logged.
    logger.warning(
        "Job {} ({}) failed in attempt {} ({}) and is retried in {:.1f} s.",
        *(job.id, job.kind, attempt, failure.kind, delay),
    )
    return End("queued", delay, 1, losses, failure)


def describe_loss(losses: int) -> JobFailure:
    """Return the description of the loss of the process of a job."""
    message = f"The process that ran it ended or froze ({losses} of at most {MAX_LOSSES - 1} times)."
    return JobFailure("WorkerLost", message, at=datetime.now(UTC).isoformat(timespec="seconds"))


def unwrap_error(error: BaseException) -> BaseException:
    """Return the first error of an exception group, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe_failure(error: BaseException, settings: Settings) -> JobFailure:
    """Return the description of an error for the row of its job."""
    error = unwrap_error(error)
    name = type(error).__name__
    text = str(error) if isinstance(error, RemError) else f"{name}: {error}" if str(error) else name
    # The first frame is always the runner's.
    lines = [
        f"{_shorten_path(frame.filename)}:{frame.lineno} in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)[1:][-MAX_CODE_LINES:]
    ]
    return JobFailure(name, redact_secrets(text, settings), lines, datetime.now(UTC).isoformat(timespec="seconds"))


def redact_secrets(text: str, settings: Settings) -> str:
    """Return the text without passwords in URLs and without secrets of the settings, cut to the maximum length."""
    text = clean_text(text)
    for secret in _find_secrets(settings):
        text = text.replace(secret, "***")
    text = _PASSWORD.sub(r"\1:***@", text)
    return text if len(text) <= MAX_MESSAGE_CHARS else f"{text[:MAX_MESSAGE_CHARS]} …"


def _find_secrets(value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        secret = value.get_secret_value()
        if len(secret) >= MIN_SECRET_CHARS:
            yield secret
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _find_secrets(getattr(value, name))
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _find_secrets(inner)


def _shorten_path(path: str) -> str:
    """Return the last three parts of a path, without the folder that REM is installed in."""
    return "/".join(Path(path.lstrip("/")).parts[-3:])
