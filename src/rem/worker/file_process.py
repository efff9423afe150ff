"""Read and store a large file in a process of its own.

Its text is cut and its rows are built in pure Python, and that takes seconds for each megabyte. In the process of
`rem serve` all requests would wait meanwhile, even with threads. The process gets its task on standard input and
writes its answer as JSON to standard output. It ends when its input is closed, so it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, TextIO
from uuid import UUID

from rem import errors

if TYPE_CHECKING:
    from rem.settings import Settings

MAX_IN_PROCESS_BYTES = 200_000
"""A larger file is processed in a process of its own."""
NICE = 5
"""The process leaves the CPU to requests, by this many steps of `nice`."""
_MODULE = "rem.worker.file_process"


async def process_in_own_process(settings: Settings, tenant_id: str, file_id: UUID) -> None:
    """Process a queued file in a new process. Raise its error. The process has ended when this returns or raises."""
    from rem.ingest.readers.documents import end_process

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", _MODULE), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None  # noqa: S101
    assert process.stdout is not None  # noqa: S101
    try:
        with suppress(BrokenPipeError, ConnectionResetError):
            # Not in the environment, which other users of the machine may see: the settings contain secrets.
            process.stdin.write(_frame(pickle.dumps((settings, tenant_id, file_id))))
            await process.stdin.drain()
        output = await process.stdout.read()
        status = await process.wait()
    finally:
        await end_process(process)
    _raise_error(output, status)


def _raise_error(output: bytes, status: int) -> None:
    if status != 0 or not output:
        raise errors.ToolFailedError(f"The process that reads the file ended unexpectedly (status {status}).")
    answer = json.loads(output)
    if answer["error"] is None:
        return
    error_class = getattr(errors, answer["error"], errors.ToolFailedError)
    raise error_class(answer["message"])


def _frame(task: bytes) -> bytes:
    return len(task).to_bytes(8, "big") + task


def main() -> None:
    """Read the task from standard input, process the file, and write the answer."""
    source = sys.stdin.buffer
    # The answer must be the only output.
    answer_stream, sys.stdout = sys.stdout, sys.stderr
    os.nice(NICE)
    settings, tenant_id, file_id = pickle.loads(source.read(int.from_bytes(source.read(8), "big")))  # noqa: S301
    threading.Thread(target=_exit_at_end_of_input, daemon=True).start()
    asyncio.run(_process_and_exit(settings, tenant_id, file_id, answer_stream))


async def _process_and_exit(settings: Settings, tenant_id: str, file_id: UUID, answer_stream: TextIO) -> NoReturn:
    """Process the file, write the answer, and end the process: a thread that still cuts the text is not waited for."""
    try:
        await _process(settings, tenant_id, file_id)
    except Exception as error:  # noqa: BLE001  # the parent raises it again
        answer: dict[str, str | None] = {"error": type(error).__name__, "message": str(error)}
    else:
        answer = {"error": None}
    answer_stream.write(json.dumps(answer))
    answer_stream.flush()
    os._exit(0)


def _exit_at_end_of_input() -> None:
    sys.stdin.buffer.read(1)
    os._exit(1)


async def _process(settings: Settings, tenant_id: str, file_id: UUID) -> None:
    from rem.app import Rem
    from rem.ingest.queue import process_queued_file

    async with Rem.open(settings) as rem:
        await process_queued_file(rem.database, settings, rem.ingester, tenant_id, file_id)


if __name__ == "__main__":
    main()
