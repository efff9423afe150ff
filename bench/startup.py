"""Start-up times of the command and the library, and the memory that an open REM takes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.measure import Result, median, say

_REPEATS = 7
_OPEN = """
import asyncio, time
started = time.perf_counter()
from rem import Rem
async def main():
    async with Rem.open() as rem:
        await rem.store().lookup("nothing")
asyncio.run(main())
print(time.perf_counter() - started)
"""
_MEMORY = """
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
    """Time whole processes, the interpreter's own start among them."""
    result = Result("startup")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["REM_HOME"] = str(home)
    python = sys.executable
    rem = str(Path(python).with_name("rem"))
    first_status = _seconds([rem, "db", "start"], environment)
    figures = {
        "python_pass": _repeated([python, "-c", "pass"], environment),
        "rem_help": _repeated([rem, "--help"], environment),
        "first_rem_db_start": first_status,
        "first_rem_db_status": _seconds([rem, "db", "status"], environment),
        "second_rem_db_status": _repeated([rem, "db", "status"], environment),
        "open_rem_and_look_up": _repeated([python, "-c", _OPEN], environment),
    }
    opened, used = map(int, _output([python, "-c", _MEMORY], environment).split())
    result.figures = {name: round(seconds, 3) for name, seconds in figures.items()}
    result.figures["memory_mb"] = {"open": round(opened / 2**20, 1), "after_2000_lookups": round(used / 2**20, 1)}
    subprocess.run([rem, "db", "stop"], env=environment, check=True, capture_output=True)
    say(f"start-up: {result.figures}")
    result.check("rem --help, seconds", figures["rem_help"], 0.4)
    result.check("memory after 2,000 lookups against after opening", used / opened, 1.2)
    return result


def _repeated(command: list[str], environment: dict[str, str]) -> float:
    return median([_seconds(command, environment) for _ in range(_REPEATS)])


def _seconds(command: list[str], environment: dict[str, str]) -> float:
    started = time.perf_counter()
    _output(command, environment)
    return time.perf_counter() - started


def _output(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
