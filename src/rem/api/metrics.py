"""`/metrics` for Prometheus: count the requests of this process, and read the state of the database."""

from __future__ import annotations

import asyncio
import hmac
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rem.api.errors import make_error_response
from rem.api.middleware import get_path_template
from rem.auth.access import METRICS_PATH
from rem.db.sql import query
from rem.errors import RemError
from rem.metrics import HTTP_IN_PROGRESS, HTTP_REQUESTS, HTTP_SECONDS, POOL_CONNECTIONS, POOL_SIZE

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as Family

    from rem.app import Rem
    from rem.settings import Settings

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
MAX_STATE_AGE_SECONDS = 5.0
"""Scrapes within this time share one look at the database."""
MAX_READ_SECONDS = 5.0
"""Prometheus waits 10 s by default. A database that takes longer than this counts as down."""
MULTIPROCESS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder in which several server processes share their counters. `rem serve` sets it."""


class MetricsMiddleware:
    """Counts requests and their durations by method, template of the path, and status."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0
        started = time.perf_counter()

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        HTTP_IN_PROGRESS.record(1)
        try:
            await self._app(scope, receive, send_noting_status)
        finally:
            HTTP_IN_PROGRESS.record(-1)
            method = scope["method"] if scope["method"] in METHODS else "other"
            route = get_path_template(scope)
            HTTP_REQUESTS.record(1, method, route, str(status))
            HTTP_SECONDS.record(time.perf_counter() - started, method, route)
            _record_pool(getattr(scope["app"].state, "rem", None))


def _record_pool(rem: Rem | None) -> None:
    if rem is None:
        return
    with suppress(RemError):
        pool = rem.database.pool
        idle = pool.get_idle_size()
        POOL_CONNECTIONS.set(idle, "idle")
        POOL_CONNECTIONS.set(pool.get_size() - idle, "used")
        POOL_SIZE.set(pool.get_max_size())


@dataclass(slots=True)
class DatabaseState:
    """The figures of the database at one moment. `is_up` is False if it did not answer."""

    is_up: bool = False
    jobs: list[tuple[str, str, int, float]] = field(default_factory=list)
    """Kind, state, number, and the wait of the oldest one in seconds."""
    ended_jobs: list[tuple[str, str, int]] = field(default_factory=list)
    dream_runs: list[tuple[str, int]] = field(default_factory=list)
    backlog_rows: int = 0
    backlog_passages: int = 0
    connections: int = 0
    max_connections: int = 0
    size_bytes: int = 0
    oldest_transaction_seconds: float = 0.0


async def read_database_state(rem: Rem) -> DatabaseState:
    """Read the state of the database of all tenants. Return one that is not up if that fails."""
    try:
        async with rem.database.connection() as connection:
            jobs = await connection.fetch(query("api/metrics", "jobs"))
            ended = await connection.fetch(query("api/metrics", "ended_jobs"))
            dreams = await connection.fetch(query("api/metrics", "dream_runs"))
            backlog = await connection.fetchrow(query("search/passages", "backlog"), None, None)
            server = await connection.fetchrow(query("api/metrics", "server"))
    except RemError:
        return DatabaseState()
    assert backlog is not None  # noqa: S101  # one row, always
    assert server is not None  # noqa: S101
    return DatabaseState(
        True,
        [tuple(row) for row in jobs],
        [tuple(row) for row in ended],
        [tuple(row) for row in dreams],
        *backlog,
        *server,
    )


class MetricsEndpoint:
    """Answers Prometheus with the counters of all server processes and the state of the database."""

    def __init__(self, settings: Settings) -> None:
        token = settings.metrics.token
        self._token = None if token is None else token.get_secret_value()
        self._state = DatabaseState()
        self._read_at = float("-inf")
        self._reading: asyncio.Task[DatabaseState] | None = None

    async def answer(self, request: Request) -> Response:
        """Return the metrics. Refuse callers without the token."""
        from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
        from prometheus_client.exposition import CONTENT_TYPE_LATEST

        if not self._is_allowed(request.headers):
            return make_error_response(
                401,
                "unauthorized",
                "Metrics need METRICS__TOKEN: send it as `Authorization: Bearer …`.",
                headers={"WWW-Authenticate": 'Bearer realm="metrics"'},
            )
        rem: Rem | None = request.app.state.rem
        registry = CollectorRegistry()
        registry.register(_StateCollector(None if rem is None else await self._get_state(rem)))
        counters = _collect_processes() if MULTIPROCESS_VARIABLE in os.environ else REGISTRY
        return Response(generate_latest(counters) + generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    async def _get_state(self, rem: Rem) -> DatabaseState:
        if time.monotonic() - self._read_at <= MAX_STATE_AGE_SECONDS:
            return self._state
        # A task that goes on: a cancelled statement would wait for the server that does not answer.
        if self._reading is None:
            self._reading = asyncio.create_task(read_database_state(rem))
        reading = self._reading
        await asyncio.wait([reading], timeout=MAX_READ_SECONDS)
        if not reading.done():
            return DatabaseState()
        self._reading = None
        self._state, self._read_at = reading.result(), time.monotonic()
        return self._state

    def _is_allowed(self, headers: Headers) -> bool:
        if self._token is None:
            return True
        scheme, _, sent = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(sent.strip().encode(), self._token.encode())


def make_metrics_route(settings: Settings) -> Route:
    """Return the route of the metrics."""
    return Route(METRICS_PATH, MetricsEndpoint(settings).answer, methods=["GET"], name="metrics")


def _collect_processes() -> CollectorRegistry:
    """Return a registry with the counters of all server processes, without the gauges of those that ended."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

    folder = Path(os.environ[MULTIPROCESS_VARIABLE])
    for file in folder.glob("gauge_live*.db"):
        pid = int(file.stem.rpartition("_")[2])
        if not psutil.pid_exists(pid):
            mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry


class _StateCollector:
    """Turns the state of the database into metrics. Without a database (None) there are none."""

    def __init__(self, state: DatabaseState | None) -> None:
        self._state = state

    def collect(self) -> Iterator[Family]:
        yield _make_family("rem_info", "The version of REM.", [((version("remstack"),), 1)], ("version",))
        if self._state is None:
            return
        yield _make_family("rem_database_up", "1 if the database answers.", [((), float(self._state.is_up))])
        if self._state.is_up:
            yield from _describe_jobs(self._state)
            yield from _describe_server(self._state)


def _describe_jobs(state: DatabaseState) -> Iterator[Family]:
    counts = [((kind, job_state), number) for kind, job_state, number, _ in state.jobs]
    yield _make_family("rem_jobs", "Jobs by kind and state.", counts, ("kind", "state"))
    waits = [((kind,), wait) for kind, job_state, _, wait in state.jobs if job_state == "queued"]
    yield _make_family("rem_job_wait_seconds", "Wait of the oldest job that is due.", waits, ("kind",))
    ended = [((kind, outcome), number) for kind, outcome, number in state.ended_jobs]
    yield _make_family("rem_jobs_ended_last_hour", "Jobs that ended in the last hour.", ended, ("kind", "outcome"))
    runs = [((run_state,), number) for run_state, number in state.dream_runs]
    yield _make_family("rem_dream_runs_last_day", "Dream runs of the last day, by state.", runs, ("state",))


def _describe_server(state: DatabaseState) -> Iterator[Family]:
    for name, description, value in (
        ("rem_index_waiting_rows", "Rows that are not in the search index yet.", state.backlog_rows),
        ("rem_index_waiting_passages", "Passages that have no embedding yet.", state.backlog_passages),
        ("rem_database_connections", "Connections of all clients of the server.", state.connections),
        ("rem_database_max_connections", "Maximum number of connections of the server.", state.max_connections),
        ("rem_database_size_bytes", "Size of the database.", state.size_bytes),
        (
            "rem_database_oldest_transaction_seconds",
            "Age of the oldest transaction.",
            state.oldest_transaction_seconds,
        ),
    ):
        yield _make_family(name, description, [((), value)])


def _make_family(
    name: str, description: str, samples: Sequence[tuple[tuple[str, ...], float]], labels: tuple[str, ...] = ()
) -> Family:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, description, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family
