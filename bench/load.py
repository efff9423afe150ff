"""`make load`: serve mixed traffic with 1, 2 and 4 processes, and print percentiles, errors and CPU time as JSON.

Locust sends the requests, from an environment of its own (`--locust`). The run is bounded by `--seconds` for each
number of processes. All of it happens on this machine, so the report says how much of the CPU each part has used.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from bench.measure import print_progress
from bench.rem_server import serve_rem
from rem import Rem, Resource, Settings
from rem.db.embedded.server import EmbeddedServer

MIXES = {
    "mixed": {"chat": 1, "search": 4, "lookup": 4, "write": 1},
    "lookup": {"lookup": 1},
}
OWNERS = 100
USERS = 32
"""Requests at the same time: enough for four processes."""
SERVER_SETTINGS = {"WORKER__IN_PROCESS": "false", "AUTH__ENABLED": "false", "API__MAX_CHATS_PER_CALLER": "1000"}
TEXTS = ("The harbour has a new ferry.", "The winter timetable begins.", "The keeper of the old lighthouse left.")


def main() -> None:
    """Measure each mix with each number of processes."""
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("--locust", required=True, help="the program of Locust")
    parser.add_argument("--processes", default="1,2,4", help="the numbers of server processes")
    parser.add_argument("--seconds", type=int, default=30, help="the time of each run")
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--users", type=int, default=USERS, help="the number of requests at the same time")
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it works")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.processes, arguments.seconds, arguments.rows, arguments.users = "1,2", 3, 500, 4
    runs = []
    with tempfile.TemporaryDirectory(prefix="rem-load-") as folder:
        home = Path(folder) / "home"
        try:
            storing = asyncio.run(_store_rows(home, arguments.rows))
            for processes in map(int, arguments.processes.split(",")):
                for name, mix in MIXES.items():
                    run = _run(home, arguments, processes, mix)
                    runs.append({"mix": name, "processes": processes, **run})
                    print_progress(format_run(runs[-1]))
        finally:
            EmbeddedServer(home).stop()
    report = {"cores": psutil.cpu_count(), "users": arguments.users, "storing": storing, "runs": runs}
    json.dump(report, sys.stdout, indent=2)
    print()


async def _store_rows(home: Path, rows: int) -> dict[str, float]:
    """Store the rows that are looked up and searched, index them, and return the CPU time of one row."""
    print_progress(f"load: storing {rows:,} rows of {OWNERS} owners ...")
    async with Rem.open(Settings(rem_home=home)) as rem:
        before = {"python": time.process_time(), "postgres": _read_cpu(home)["postgres"]}
        for owner in range(OWNERS):
            await rem.for_user(f"user-{owner}@example.com").store.upsert_many(
                [
                    Resource(name=f"Report {number}", content=f"{TEXTS[number % len(TEXTS)]} Number {number}.")
                    for number in range(owner, rows, OWNERS)
                ]
            )
        await rem.for_user().index()
        after = {"python": time.process_time(), "postgres": _read_cpu(home)["postgres"]}
    return {f"{part}_cpu_ms_per_row": round(1000 * (after[part] - before[part]) / rows, 2) for part in before}


def _run(home: Path, arguments: argparse.Namespace, processes: int, mix: Mapping[str, int]) -> dict[str, Any]:
    settings = {**SERVER_SETTINGS, "API__WORKERS": str(processes)}
    with serve_rem(home, settings) as address:
        _send(address, arguments, mix, seconds=min(3, arguments.seconds))
        before = _read_cpu(home)
        report, locust_seconds = _send(address, arguments, mix, seconds=arguments.seconds)
        after = _read_cpu(home)
        cpu = {part: after[part] - before[part] for part in before} | {"locust": locust_seconds}
        memory = sum(process.memory_info().rss for process in _find_servers())
    figures = {entry["name"]: summarize(entry) for entry in report}
    requests = sum(figure["requests"] for figure in figures.values())
    return {
        "requests_per_second": round(requests / arguments.seconds, 1),
        "errors": sum(figure["errors"] for figure in figures.values()),
        "kinds": figures,
        "cpu_ms_per_request": {part: round(1000 * seconds / max(requests, 1), 2) for part, seconds in cpu.items()},
        "cpu_cores_used": {part: round(seconds / arguments.seconds, 2) for part, seconds in cpu.items()},
        "api_memory_bytes": memory,
    }


def _send(
    address: str, arguments: argparse.Namespace, mix: Mapping[str, int], seconds: int
) -> tuple[list[dict[str, Any]], float]:
    """Let Locust send requests, and return its report and its CPU time."""
    environment = {
        **os.environ,
        "REM_LOAD_MIX": json.dumps(mix),
        "REM_LOAD_ROWS": str(arguments.rows),
        "REM_LOAD_OWNERS": str(OWNERS),
    }
    command = [arguments.locust, "--locustfile", str(Path(__file__).with_name("load_users.py")), "--host", address]
    command += ["--headless", "--users", str(arguments.users), "--spawn-rate", str(arguments.users)]
    command += ["--run-time", f"{seconds}s", "--stop-timeout", "60", "--json", "--loglevel", "WARNING"]
    started = psutil.Process().cpu_times()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=seconds + 120)
    ended = psutil.Process().cpu_times()
    used = ended.children_user + ended.children_system - started.children_user - started.children_system
    report: list[dict[str, Any]] = json.loads(done.stdout)
    return report, used


def _find_servers() -> list[psutil.Process]:
    """Return the processes of `rem serve`, which this process has started."""
    return psutil.Process().children(recursive=True)


def _read_cpu(home: Path) -> dict[str, float]:
    """Return the CPU seconds that the API and PostgreSQL have used since they were started."""
    postmaster = EmbeddedServer(home).status().pid
    database = [psutil.Process(postmaster), *psutil.Process(postmaster).children(recursive=True)]
    return {"api": _sum_cpu(_find_servers()), "postgres": _sum_cpu(database)}


def _sum_cpu(processes: list[psutil.Process]) -> float:
    """Return the CPU seconds of running processes, and of those children that have ended."""
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def summarize(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of requests, the errors and the percentiles in milliseconds of one kind of request."""
    times = sorted((float(milliseconds), count) for milliseconds, count in entry["response_times"].items())
    return {
        "requests": entry["num_requests"],
        "errors": entry["num_failures"],
        **{f"p{percent}_ms": _find_percentile(times, percent / 100) for percent in (50, 95, 99)},
    }


def _find_percentile(times: list[tuple[float, int]], share: float) -> float:
    """Return the time that this share of the requests did not exceed. `times` are pairs of time and count, sorted."""
    wanted = share * sum(count for _, count in times)
    seen = 0
    for milliseconds, count in times:
        seen += count
        if seen >= wanted:
            return milliseconds
    return 0.0


def format_run(run: Mapping[str, Any]) -> str:
    """Return the lines of one run for people."""
    cpu = ", ".join(f"{part} {cores}" for part, cores in run["cpu_cores_used"].items())
    lines = [
        f"{run['mix']}, {run['processes']} processes: {run['requests_per_second']} requests/s, {run['errors']} errors, "
        f"cores used: {cpu}"
    ]
    lines += [
        f"  {kind:<8}{figure['requests']:>8} requests  p50 {figure['p50_ms']:g}  p95 {figure['p95_ms']:g}  "
        f"p99 {figure['p99_ms']:g} ms  {figure['errors']} errors"
        for kind, figure in run["kinds"].items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
