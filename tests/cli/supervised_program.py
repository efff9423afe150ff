"""A program for `test_supervisor.py`: `python supervised_program.py FOLDER OPTIONS` supervises itself.

Its children answer each connection with their process id. SIGUSR1 makes the event loop of a child busy for ever. While
there is a file `broken` in the folder, children exit with the code 7 when they start.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path

from rem.cli.supervisor import Heartbeat, Options, supervise


async def serve(heartbeat: Heartbeat, folder: Path) -> None:
    """Answer until SIGTERM or SIGINT."""
    stopped = asyncio.Event()

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(str(os.getpid()).encode())
        writer.close()

    def stop(number: int) -> None:
        with (folder / "signals").open("a") as file:
            file.write(f"{number}\n")
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    async with heartbeat.beating(), await asyncio.start_server(answer, sock=heartbeat.sockets[0]):
        await stopped.wait()


def freeze(_number: int, _frame: object) -> None:
    """Hold the interpreter without a pause, as a regular expression that backtracks does."""
    (Path(sys.argv[1]) / f"frozen-{os.getpid()}").touch()
    sum(iter(int, 1))


def main() -> None:
    """Become the supervisor, or be its child."""
    folder = Path(sys.argv[1])
    heartbeat = Heartbeat.from_environment()
    if heartbeat is None:
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        (folder / "port").write_text(str(port))
        command = [sys.executable, "-P", __file__, str(folder)]
        supervise(Options(command=command, sockets=[listening.fileno()], **json.loads(sys.argv[2])))
    with (folder / "started").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if (folder / "broken").exists():
        sys.exit(7)
    signal.signal(signal.SIGUSR1, freeze)
    asyncio.run(serve(heartbeat, folder))
    sys.exit(3)


if __name__ == "__main__":
    main()
