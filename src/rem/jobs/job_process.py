"""Run a job in a process of its own: a large file, or a job that a process has ended or frozen with.

The text of a large file is cut and its rows are built in pure Python, and that takes seconds for each megabyte. In the
process of `rem serve` all requests would wait meanwhile, even with threads. The process gets its task on standard input
and writes its answer as JSON to the last line of standard output, and an empty line as a sign of life before that. It
ends when its input is closed, so it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import rem.errors as errors

if TYPE_CHECKING:
    from rem.jobs.handlers import Handler
    from rem.settings import Settings

NICE = 5
"""The process leaves the CPU to requests, by this many steps of `nice`."""
START_SECONDS, MIN_SILENCE_SECONDS = 60.0, 10.0
"""Time to start, and without a sign of life, that a process gets in any case."""
MAX_MESSAGE_CHARS = 4000
"""A line of output must fit into the buffer of its reader."""


class ProcessLostError(Exception):
    """The process of a job ended without an answer, or froze."""


async def run_in_own_process(settings: Settings, handler: Handler, payload: Mapping[str, Any]) -> None:
    """Run a handler, a function of a module, in a new process. Raise its error. The process has ended afterwards."""
    from rem.ingest.readers.documents import end_process, start_process

    task = pickle.dumps((settings, handler, dict(payload)))
    process = await start_process(
        *(sys.executable, "-P", "-m", "rem.jobs.job_process"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None  # noqa: S101
    assert process.stdout is not None  # noqa: S101
    try:
        with suppress(BrokenPipeError, ConnectionResetError):
            # Not in the environment, which other users of the machine may see: the settings contain secrets.
            process.stdin.write(_frame(pickle.dumps(sys.path)) + _frame(task))
            await process.stdin.drain()
        answer = await _read_answer(process.stdout, settings.worker.heartbeat_seconds)
    finally:
        await end_process(process)
    if answer["error"] is not None:
        raise getattr(errors, answer["error"], errors.ToolFailedError)(answer["message"])


async def _read_answer(output: asyncio.StreamReader, max_silence: float) -> dict[str, Any]:
    seconds, max_silence = START_SECONDS, max(MIN_SILENCE_SECONDS, max_silence)
    while True:
        try:
            line = await asyncio.wait_for(output.readline(), seconds)
        except TimeoutError as error:
            raise ProcessLostError from error
        if not line:
            raise ProcessLostError
        if line.strip():
            answer: dict[str, Any] = json.loads(line)
            return answer
        seconds = max_silence


def _frame(task: bytes) -> bytes:
    return len(task).to_bytes(8, "big") + task


def main() -> None:
    """Read the task from standard input, run the job, and write the answer."""
    # The answer must be the only output.
    answer_stream, sys.stdout = sys.stdout, sys.stderr
    os.nice(NICE)
    sys.path[:] = _read_frame()
    settings, handler, payload = _read_frame()
    threading.Thread(target=_exit_at_end_of_input, daemon=True).start()
    # A thread, because long calculations may occupy the event loop: only code that never lets go of Python is a freeze.
    threading.Thread(
        target=_show_life, args=(answer_stream, settings.worker.heartbeat_seconds / 4), daemon=True
    ).start()
    asyncio.run(_run_and_exit(settings, handler, payload, answer_stream))


def _read_frame() -> Any:
    source = sys.stdin.buffer
    return pickle.loads(source.read(int.from_bytes(source.read(8), "big")))  # noqa: S301


async def _run_and_exit(settings: Settings, handler: Handler, payload: dict[str, Any], output: TextIO) -> NoReturn:
    """Run the job, write the answer, and end the process: a thread that still cuts the text is not waited for."""
    answer: dict[str, str | None] = {"error": None}
    try:
        await _run(settings, handler, payload)
    except Exception as error:  # noqa: BLE001  # the parent raises it again
        is_known = isinstance(error, errors.RemError)
        name = type(error).__name__
        answer = {"error": name, "message": (str(error) if is_known else f"{name}: {error}")[:MAX_MESSAGE_CHARS]}
    # In one piece, beside the signs of life.
    output.write(f"\n{json.dumps(answer)}\n")
    output.flush()
    os._exit(0)


def _show_life(output: TextIO, seconds: float) -> None:
    while True:
        output.write("\n")
        output.flush()
        time.sleep(seconds)


def _exit_at_end_of_input() -> None:
    sys.stdin.buffer.read(1)
    os._exit(1)


async def _run(settings: Settings, handler: Handler, payload: dict[str, Any]) -> None:
    from rem.app import Rem
    from rem.jobs.handlers import HandlerContext
    from rem.jobs.queue import JobQueue

    async with Rem.open(settings) as rem:
        context = HandlerContext(rem, settings, JobQueue(rem.database), has_own_process=True)
        await handler(context, payload)


if __name__ == "__main__":
    main()
