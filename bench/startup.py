"""Measure start-up times of the command and the library, and the memory of an open REM."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.measure import Result, median, print_progress

_REPEATS = 7
_OPEN_AND_LOOKUP = """
import asyncio, time
started = time.perf_counter()
from rem import Rem
async def main():
    async with Rem.open() as rem:
        await rem.store().lookup("nothing")
asyncio.run(main())
print(time.perf_counter() - started)
"""
_MEASURE_MEMORY = """
import asyncio, psutil
from rem import Rem
async def main():
    async with Rem.open() as rem:
        store = rem.store()
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
    opened, used = map(int, _run([python, "-c", _MEASURE_MEMORY], environment).split())
    result.figures = {name: round(seconds, 3) for name, seconds in figures.items()}
    result.figures["memory_mb"] = {"open": round(opened / 2**20, 1), "after_2000_lookups": round(used / 2**20, 1)}
    subprocess.run([rem, "db", "stop"], env=environment, check=True, capture_output=True)
    print_progress(f"start-up: {result.figures}")
    result.check("rem --help, seconds", figures["rem_help"], 0.4)
    result.check("memory after 2,000 lookups against after opening", used / opened, 1.2)
    return result


def _measure_median(command: list[str], environment: dict[str, str]) -> float:
    return median([_measure_seconds(command, environment) for _ in range(_REPEATS)])


def _measure_seconds(command: list[str], environment: dict[str, str]) -> float:
    started = time.perf_counter()
    _run(command, environment)
    return time.perf_counter() - started


def _run(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
