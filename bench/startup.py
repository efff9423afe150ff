"""Measure start-up times of the command, the server and the library, and the memory of an open REM and of a server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from bench.measure import Result, median, print_progress

_REPEATS = 7
_SERVER_REPEATS = 3
MAX_SUPERVISOR_MB = 20.0
_OPEN_AND_LOOKUP = """
import asyncio, time
started = time.perf_counter()
from rem import Rem
async def main():
    async with Rem.open() as rem:
        await rem.for_user().store.lookup("nothing")
asyncio.run(main())
print(time.perf_counter() - started)
"""
_MEASURE_MEMORY = """
import asyncio, psutil
from rem import Rem
async def main():
    async with Rem.open() as rem:
        store = rem.for_user().store
        opened = psutil.Process().memory_info().rss
        for number in range(2000):
            await store.lookup(f"entity-{number}")
        print(opened, psutil.Process().memory_info().rss)
asyncio.run(main())
"""


async def run(home: Path) -> Result:
    """Time complete processes, including the start of the interpreter."""
    result = Result("startup")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["REM_HOME"] = str(home)
    python = sys.executable
    rem = str(Path(python).with_name("rem"))
    first_start = _measure_seconds([rem, "db", "start"], environment)
    figures = {
        "python_pass": _measure_median([python, "-c", "pass"], environment),
        "rem_help": _measure_median([rem, "--help"], environment),
        "first_rem_db_start": first_start,
        "first_rem_db_status": _measure_seconds([rem, "db", "status"], environment),
        "second_rem_db_status": _measure_median([rem, "db", "status"], environment),
        "open_rem_and_look_up": _measure_median([python, "-c", _OPEN_AND_LOOKUP], environment),
    }
    figures["rem_serve_listens"], served = _measure_server(rem, environment)
    opened, used = map(int, _run([python, "-c", _MEASURE_MEMORY], environment).split())
    result.figures = {name: round(seconds, 3) for name, seconds in figures.items()}
    result.figures["memory_mb"] = {"open": round(opened / 2**20, 1), "after_2000_lookups": round(used / 2**20, 1)}
    result.figures["memory_mb"] |= {name: round(size / 2**20, 1) for name, size in served.items()}
    subprocess.run([rem, "db", "stop"], env=environment, check=True, capture_output=True)
    print_progress(f"start-up: {result.figures}")
    result.check("rem --help, seconds", figures["rem_help"], 0.4)
    result.check("memory of the supervisor of rem serve, MB", served["supervisor"] / 2**20, MAX_SUPERVISOR_MB)
    result.check("memory after 2,000 lookups against after opening", used / opened, 1.2)
    return result


def _measure_server(rem: str, environment: dict[str, str]) -> tuple[float, dict[str, int]]:
    """Return the median time until `rem serve` listens, and the memory of its supervisor and of its server process."""
    seconds = []
    for _ in range(_SERVER_REPEATS):
        started = time.perf_counter()
        with subprocess.Popen(
            [rem, "serve", "--port", "0", "--log-level", "error"], env=environment, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            assert any(line.startswith("REM listens on ") for line in process.stderr)
            seconds.append(time.perf_counter() - started)
            supervisor = psutil.Process(process.pid)
            (server,) = supervisor.children()
            memory = {"supervisor": supervisor.memory_info().rss, "server": server.memory_info().rss}
            process.terminate()
    return median(seconds), memory


def _measure_median(command: list[str], environment: dict[str, str]) -> float:
    return median([_measure_seconds(command, environment) for _ in range(_REPEATS)])


def _measure_seconds(command: list[str], environment: dict[str, str]) -> float:
    started = time.perf_counter()
    _run(command, environment)
    return time.perf_counter() - started


def _run(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
