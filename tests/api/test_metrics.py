"""METRICS__ENABLED: Prometheus reads requests, limits, jobs and the state of the database, and nobody else does."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
import pytest
from pydantic import SecretStr

from rem.api.main import create_app
from rem.api.metrics import MAX_STATE_AGE_SECONDS
from rem.app import Rem
from rem.errors import SettingsError
from rem.jobs.queue import JobQueue
from rem.settings import AuthSettings, MetricsSettings, RateLimitSettings, Settings, SqlSettings
from tests.api.live_server import client, served
from tests.cli.test_serve import serving

TOKEN = "t0ken-of-prometheus"


@asynccontextmanager
async def measured(settings: Settings, **groups: object) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve the API with metrics, and yield a client of Alice."""
    update = {"metrics": MetricsSettings(enabled=True), **groups}
    async with served(create_app(settings.model_copy(update=update))) as address, client(address, "alice") as http:
        yield http


async def read_metrics(http: httpx2.AsyncClient) -> dict[str, float]:
    """Return the value of each time series."""
    answer = await http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return parse_metrics(answer.text)


def parse_metrics(text: str) -> dict[str, float]:
    """Return the value of each time series, with its labels in the order in which they are written."""
    return {name: float(value) for name, value in re.findall(r"^([a-z]\S*(?:\{.*\})?) (\S+)$", text, re.MULTILINE)}


async def wait_for_metrics(
    http: httpx2.AsyncClient, is_expected: Callable[[dict[str, float]], bool]
) -> dict[str, float]:
    """Read the metrics until they are as expected. The state of the database is read every few seconds."""
    deadline = time.monotonic() + 60
    while not is_expected(values := await read_metrics(http)):
        assert time.monotonic() < deadline, values
        await asyncio.sleep(MAX_STATE_AGE_SECONDS / 10)
    return values


async def test_metrics_are_off_by_default(as_alice: httpx2.AsyncClient) -> None:
    assert (await as_alice.get("/metrics")).status_code == 404


async def test_requests_are_counted_by_route_and_status(settings: Settings) -> None:
    async with measured(settings) as http:
        before = await read_metrics(http)
        for key in ("secret-name", "other-name"):
            await http.get(f"/api/v1/entities/users/{key}")
        await http.request("PROPFIND", "/api/v1/models")
        after = await read_metrics(http)

    def count_new(series: str) -> float:
        return after.get(series, 0) - before.get(series, 0)

    route = "/api/v1/entities/{table}/{key}"
    assert count_new(f'rem_http_requests_total{{method="GET",route="{route}",status="404"}}') == 2
    assert count_new(f'rem_http_request_seconds_count{{method="GET",route="{route}"}}') == 2
    assert any('method="other"' in series for series in after)
    assert after["rem_http_requests_in_progress"] == 1
    assert not any("secret-name" in series for series in after)
    assert after['rem_pool_connections{state="idle"}'] >= 1
    assert after["rem_pool_max_connections"] == settings.postgres.pool_max_size


async def test_jobs_and_database_are_described(settings: Settings, rem: Rem) -> None:
    jobs = JobQueue(rem.database)
    for number in range(3):
        await jobs.enqueue("unknown-kind", {"tenant_id": "default", "number": number})
    async with measured(settings) as http:
        values = await wait_for_metrics(http, lambda values: 'rem_jobs{kind="unknown-kind",state="queued"}' in values)
    assert values['rem_jobs{kind="unknown-kind",state="queued"}'] == 3
    assert values['rem_job_wait_seconds{kind="unknown-kind"}'] >= 0
    assert values["rem_database_up"] == 1
    assert 0 < values["rem_database_connections"] <= values["rem_database_max_connections"]
    assert values["rem_database_size_bytes"] > 1_000_000
    assert values["rem_index_waiting_rows"] == values["rem_index_waiting_passages"] == 0


async def test_dream_runs_and_waiting_rows_are_counted(settings: Settings, rem: Rem) -> None:
    async with rem.database.connection() as connection:
        await connection.execute(
            "INSERT INTO rem.dream_runs (tenant_id, dreams, state) VALUES ('default', '{moments}', 'failed')"
        )
        await connection.execute(
            "INSERT INTO rem.dream_runs (tenant_id, dreams, state, started_at) "
            "VALUES ('default', '{moments}', 'failed', now() - interval '2 days')"
        )
    async with measured(settings) as http:
        values = await wait_for_metrics(http, lambda values: 'rem_dream_runs_last_day{state="failed"}' in values)
    assert values['rem_dream_runs_last_day{state="failed"}'] == 1


async def test_refusals_and_stopped_sql_are_counted(settings: Settings) -> None:
    limits = RateLimitSettings(enabled=True, anonymous="2/hour")
    async with measured(settings, rate_limit=limits, sql=SqlSettings(timeout_seconds=0.2)) as http:
        before = await read_metrics(http)
        slow = {"query": "SQL SELECT count(*) FROM generate_series(1, 1000000000)"}
        statuses = [(await http.post("/api/v1/query", json=slow)).status_code for _ in range(4)]
        assert statuses[2:] == [429, 429]
        after = await read_metrics(http)
    assert after["rem_sql_stopped_total"] - before.get("rem_sql_stopped_total", 0) == 2
    refusals = 'rem_rate_limit_refusals_total{tier="anonymous"}'
    assert after[refusals] - before.get(refusals, 0) == 2


async def test_token_is_required_where_it_is_set(settings: Settings) -> None:
    async with measured(settings, metrics=MetricsSettings(enabled=True, token=SecretStr(TOKEN))) as http:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
            refused = await http.get("/metrics", headers=headers)
            assert refused.status_code == 401
            assert "rem_http" not in refused.text
        assert (await http.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})).status_code == 200


def test_server_with_logins_needs_a_token_for_metrics(settings: Settings) -> None:
    update = {"metrics": MetricsSettings(enabled=True), "auth": AuthSettings(enabled=True)}
    with pytest.raises(SettingsError, match="METRICS__TOKEN is missing"):
        create_app(settings.model_copy(update=update))


def test_two_server_processes_are_counted_together(dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "METRICS__ENABLED": "true", "WORKER__IN_PROCESS": "false"}
    counted = 'rem_http_requests_total{method="GET",route="/api/v1/models",status="200"}'
    with serving("--workers", "2", settings=settings) as (address, _process):
        for _ in range(40):
            # A new connection each time, so that both processes get some.
            assert httpx2.get(f"{address}/api/v1/models", timeout=30).status_code == 200
        for _ in range(10):
            values = parse_metrics(httpx2.get(f"{address}/metrics", timeout=30).text)
            assert values[counted] == 40
            assert values["rem_database_up"] == 1
