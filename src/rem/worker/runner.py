"""JobRunner: runs one attempt at a job and decides how it ends."""

from __future__ import annotations

import asyncio
import random
import re
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from anyio import CancelScope
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
from rem.jobs.job import JobFailure
from rem.settings import Settings
from rem.text import clean_text
from rem.worker.queries import DeadError, FailedError, RequeueError, WorkerQueries

if TYPE_CHECKING:
    from pgqueuer.domain.models import Context, Job

    from rem.worker.handlers import Handler, HandlerContext


_FINAL_ERRORS = (InvalidInputError, NotFoundError, SettingsError, MemoryDisabledError, ImmutableError, DeletedError)
MAX_MESSAGE_CHARS = 2000
MAX_CODE_LINES = 5
_PASSWORD = re.compile(r"(?<=://)([^\s/@:]*):[^\s/@]*@")
MIN_SECRET_CHARS = 4
"""Shorter secrets would redact ordinary words."""


MAX_RETRY_DELAY_SECONDS = 3600.0
EQUAL_JOB_DELAY_SECONDS = 1.0
OTHER_SERVER_DELAY_SECONDS = 5.0
LEASE_SHARE = 0.9
"""Share of the heartbeat timeout after which a job is interrupted, before another worker takes it over."""


class JobRunner:
    """Runs handlers, and interrupts them when this worker may no longer hold their job."""

    def __init__(self, context: HandlerContext, queries: WorkerQueries) -> None:
        self._context = context
        self._settings = context.settings.worker
        self._queries = queries
        self._scopes: dict[int, CancelScope] = {}

    @property
    def running(self) -> int:
        """Number of running jobs."""
        return len(self._scopes)

    async def run(self, job: Job, context: Context, handler: Handler) -> None:
        """Run one attempt. The error that it raises tells `WorkerQueries` how to store the end of the job."""
        if job.attempts >= self._settings.attempts:
            raise self._make_dead_error(job, _describe_lost_worker(job.attempts))
        after = (job.headers or {}).get("after")
        if isinstance(after, int) and await self._queries.is_running(after):
            raise RequeueError(delay=timedelta(seconds=EQUAL_JOB_DELAY_SECONDS), reason="waits for an equal job")
        started = time.perf_counter()
        failure: Exception | None = None
        # The outer scope lets the worker interrupt the job; the inner one belongs to pgqueuer, for `rem jobs cancel`.
        with CancelScope() as scope, context.cancellation:
            self._scopes[job.id] = scope
            try:
                await handler(self._context, orjson.loads(job.payload or b"{}"))
            except Exception as error:  # noqa: BLE001  # an error of a handler ends the job, not the worker
                failure = error
            finally:
                self._scopes.pop(job.id, None)
        if scope.cancelled_caught or (failure is not None and scope.cancel_called):
            logger.info("Job {} ({}) was interrupted and is queued again.", job.id, job.entrypoint)
            raise RequeueError(delay=timedelta(), reason="interrupted")
        if isinstance(failure, RequeueError):
            raise failure
        if isinstance(failure, FetchForbiddenError):
            # A server with other INGEST settings accepted the file, and will take the job.
            logger.info("Job {} ({}) is left to a server that may read its source.", job.id, job.entrypoint)
            self._queries.left_to_others.add(job.id)
            raise RequeueError(delay=timedelta(seconds=OTHER_SERVER_DELAY_SECONDS), reason="not for this server")
        if failure is not None:
            raise self._make_error(job, failure)
        logger.info("Job {} ({}) took {:.2f} s.", job.id, job.entrypoint, time.perf_counter() - started)

    def interrupt_all(self) -> None:
        """Interrupt all running jobs. They are queued again at once."""
        for scope in list(self._scopes.values()):
            scope.cancel()

    async def watch(self) -> None:
        """Interrupt jobs whose heartbeat is so old that another worker may soon take them over. Run until cancelled."""
        lease = self._settings.heartbeat_seconds * LEASE_SHARE
        while True:
            await asyncio.sleep(lease / 10)
            now = asyncio.get_running_loop().time()
            for job_id, scope in list(self._scopes.items()):
                if now - self._queries.held.get(job_id, now) > lease and not scope.cancel_called:
                    logger.warning(
                        "Job {} is interrupted: its heartbeat has not reached the database for too long.", job_id
                    )
                    scope.cancel()

    def _make_error(self, job: Job, error: Exception) -> FailedError | DeadError:
        failure = describe_failure(error, self._context.settings)
        attempt = job.attempts + 1
        if is_final(error) or attempt >= self._settings.attempts:
            return self._make_dead_error(job, failure)
        delay = self._retry_delay(job.attempts)
        # The message may contain data of the user, so it is stored with the job and not logged.
        logger.warning(
            "Job {} ({}) failed in attempt {} ({}) and is retried in {:.1f} s.",
            *(job.id, job.entrypoint, attempt, type(unwrap_error(error)).__name__, delay),
        )
        return FailedError(delay=timedelta(seconds=delay), reason=_to_json(failure))

    def _make_dead_error(self, job: Job, failure: JobFailure) -> DeadError:
        logger.error(
            "Job {} ({}) is dead after attempt {} ({}): see `rem jobs show {}`.",
            *(job.id, job.entrypoint, job.attempts + 1, failure.kind, job.id),
        )
        return DeadError(_to_json(failure))

    def _retry_delay(self, retries: int) -> float:
        """Return the delay in seconds: doubled for each retry, and random so jobs that failed together are spread."""
        delay = min(self._settings.retry_seconds * 2.0 ** min(retries, 30), MAX_RETRY_DELAY_SECONDS)
        return delay * random.uniform(0.8, 1.2)  # noqa: S311  # no secret


def _describe_lost_worker(times: int) -> JobFailure:
    return JobFailure("WorkerVanished", f"Its worker was lost {times} times while running it.")


def _to_json(failure: JobFailure) -> str:
    return orjson.dumps(asdict(failure)).decode()


def is_final(error: BaseException) -> bool:
    """Return whether a retry would fail in the same way, because the input of the job is wrong."""
    return isinstance(unwrap_error(error), _FINAL_ERRORS)


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
