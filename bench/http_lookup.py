"""Compare a LOOKUP over HTTP with authentication, rate limit and audit log with the same request without them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2 as httpx

from bench.measure import Call, Result, measure_in_turns, print_progress
from bench.rem_server import serve_rem
from rem import Rem, Resource, Settings

ROUNDS = 2000
MAX_RATIO = 1.35
USER = "alice@example.com"
ROWS = 1000
PROTECTED = {
    "AUTH__ENABLED": "true",
    "AUTH__ALLOW_ANONYMOUS": "false",
    "RATE_LIMIT__ENABLED": "true",
    "RATE_LIMIT__FREE": "999999999/day",
    "AUDIT__ENABLED": "true",
}
OPEN = {"AUTH__ENABLED": "false", "RATE_LIMIT__ENABLED": "false", "AUDIT__ENABLED": "false"}


async def run(home: Path, rounds: int = ROUNDS) -> Result:
    """Measure both servers in turns, on the same database."""
    result = Result("http")
    async with Rem.open(Settings(rem_home=home)) as rem:
        rows = [Resource(name=f"Entity Number {n}", content=f"What is remembered of {n}.") for n in range(ROWS)]
        await rem.for_user(USER).store.upsert_many(rows)
    with serve_rem(home, OPEN) as open_address, serve_rem(home, PROTECTED) as protected_address:
        key_headers = {"Authorization": f"Bearer {_create_key(home)}"}
        async with (
            httpx.AsyncClient(base_url=open_address, headers={"X-User-Id": USER}, timeout=60) as open_http,
            httpx.AsyncClient(base_url=protected_address, headers=key_headers, timeout=60) as protected_http,
        ):
            calls = {"open": _make_call(open_http), "protected": _make_call(protected_http)}
            times = await measure_in_turns(calls, rounds, warm_up=min(200, rounds))
            refused = await httpx.AsyncClient(base_url=protected_address).get("/api/v1/sessions")
            assert refused.status_code == 401
    async with Rem.open(Settings(rem_home=home)) as rem, rem.database.connection() as connection:
        entries = int(await connection.fetchval("SELECT count(*) FROM rem.audit_log"))
        assert entries >= rounds, f"{entries} entries in the audit log"
    result.figures["lookup over http"] = {**times, "audit_entries": entries}
    print_progress(f"http, a lookup: {times}")
    name = "LOOKUP over HTTP with authentication, rate limit and audit against the same without them"
    result.check(name, times["protected"] / times["open"], MAX_RATIO)
    return result


def _make_call(http: httpx.AsyncClient) -> Call:
    async def call(number: int) -> None:
        answer = await http.post("/api/v1/query", json={"query": f"LOOKUP entity-number-{number % ROWS}"})
        assert answer.status_code == 200, answer.text
        assert answer.json()["count"] == 1

    return call


def _create_key(home: Path) -> str:
    command = [str(Path(sys.executable).with_name("rem")), "keys", "create", "bench", "--user", USER, "--json"]
    done = subprocess.run(command, env={**os.environ, "REM_HOME": str(home)}, capture_output=True, check=True)
    return str(json.loads(done.stdout)["key"])
