"""Compare the lookups of two API processes with those of one, with a fixed share of a core for each process.

On a small machine the database and the client of this benchmark need cores, too, so that a second process would only
take CPU time from them. A control group of Linux therefore limits each API process to a quarter of a core: then the
process is the bottleneck, as on a machine of its own, and all others have enough. The figures say whether that was so.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from bench.measure import Result, median, print_progress
from bench.rem_server import serve_rem
from rem import Rem, Resource, Settings
from rem.db.embedded.server import EmbeddedServer

ROWS = 2_000
ROUNDS = 5
SECONDS = 10.0
CORES_PER_PROCESS = 0.25
PERIOD_MICROSECONDS = 20_000
"""Shorter than the default of 100 ms, in which a process would run for 25 ms and then wait for 75."""
CONNECTIONS = 8
"""The least number for each process."""
MAX_CONNECTIONS = 32
"""The most for each process, on average: the kernel does not distribute them evenly."""
MAX_CONNECT_SECONDS = 120.0
MIN_RATIO = 1.8
MIN_SHARE_USED = 0.9
"""A process that uses less of its share was not the bottleneck."""
USER = "alice@example.com"
SETTINGS = {"WORKER__IN_PROCESS": "false", "AUTH__ENABLED": "false"}


@dataclass(frozen=True, slots=True)
class ProcessRun:
    """The lookups of one run, and the cores that each part used."""

    processes: int
    lookups_per_second: float
    api_cores: float
    postgres_cores: float
    client_cores: float

    @property
    def share_used(self) -> float:
        """Return how much of its share an API process has used."""
        return self.api_cores / (self.processes * CORES_PER_PROCESS)


async def run(home: Path, rounds: int = ROUNDS, seconds: float = SECONDS) -> Result:
    """Measure one and two processes in turns."""
    result = Result("processes")
    async with Rem.open(Settings(rem_home=home)) as rem:
        rows = [Resource(name=f"Report {number}", content=f"What is remembered of {number}.") for number in range(ROWS)]
        await rem.for_user(USER).store.upsert_many(rows)
        # Otherwise the first process would do it meanwhile.
        await rem.index()
    runs: dict[int, list[ProcessRun]] = {1: [], 2: []}
    for _ in range(rounds):
        for processes in runs:
            runs[processes].append(await _measure(home, processes, seconds))
            print_progress(f"processes: {runs[processes][-1]}")
    one, two = (median([run.lookups_per_second for run in runs[processes]]) for processes in runs)
    used = min(run.share_used for measured in runs.values() for run in measured)
    result.figures = {
        "cores": psutil.cpu_count(),
        "cores_per_process": CORES_PER_PROCESS,
        "lookups_per_second": {"1": round(one, 1), "2": round(two, 1)},
        "ratio": round(two / one, 3),
        "smallest_share_used": round(used, 2),
        "runs": [asdict(run) for measured in runs.values() for run in measured],
    }
    result.check("lookups of one API process against two", one / two, round(1 / MIN_RATIO, 3))
    result.check("part of its share that an API process left unused", 1 - used, round(1 - MIN_SHARE_USED, 2))
    return result


async def _measure(home: Path, processes: int, seconds: float) -> ProcessRun:
    with serve_rem(home, {**SETTINGS, "API__WORKERS": str(processes)}) as address, ExitStack() as limits:
        servers = _find_api_processes(processes)
        connections = await _connect(address, servers)
        for server in servers:
            limits.enter_context(_limited(server.pid, CORES_PER_PROCESS))
        await _send(connections, min(2.0, seconds))
        postmaster = psutil.Process(EmbeddedServer(home).status().pid)
        before, started = _read_cpu(servers, postmaster), time.perf_counter()
        lookups = await _send(connections, seconds)
        elapsed, after = time.perf_counter() - started, _read_cpu(servers, postmaster)
        for connection in connections:
            connection.close()
        api, postgres, client = (round((b - a) / elapsed, 2) for a, b in zip(before, after, strict=True))
        return ProcessRun(processes, round(lookups / elapsed, 1), api, postgres, client)


def _find_api_processes(processes: int) -> list[psutil.Process]:
    """Return the processes that answer requests: the children of `rem serve`. The first one is ready."""
    (supervisor,) = psutil.Process().children()
    deadline = time.monotonic() + MAX_CONNECT_SECONDS
    while len(children := supervisor.children()) != processes:
        assert time.monotonic() < deadline, f"rem serve has {len(children)} processes"
        time.sleep(0.05)
    return children


def _read_cpu(servers: list[psutil.Process], postmaster: psutil.Process) -> tuple[float, float, float]:
    """Return the CPU seconds of the API, of PostgreSQL and of this process."""
    database = [postmaster, *postmaster.children()]
    return _sum_cpu(servers), _sum_cpu(database), time.process_time()


def _sum_cpu(processes: list[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


@contextmanager
def _limited(pid: int, cores: float) -> Iterator[None]:
    """Limit a process to a share of a core while the block runs."""
    first_version = Path("/sys/fs/cgroup/cpu")
    is_first_version = first_version.is_dir()
    root = first_version if is_first_version else first_version.parent
    group = root / f"rem-bench-{pid}"
    quota = str(int(cores * PERIOD_MICROSECONDS))
    try:
        group.mkdir()
        if is_first_version:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
            (group / "cpu.cfs_quota_us").write_text(quota)
        else:
            (root / "cgroup.subtree_control").write_text("+cpu")
            (group / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        raise SystemExit(f"This benchmark needs Linux, root and control groups that can be written: {error}") from error
    try:
        yield
    finally:
        (root / "cgroup.procs").write_text(str(pid))
        group.rmdir()


class _Connection:
    """A connection that sends lookups without a library: a client that needs as much CPU as the API would limit it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def look_up(self, number: int) -> None:
        """Look up one row, and check the answer."""
        body = f'{{"query": "LOOKUP report-{number}"}}'
        self._writer.write(
            f"POST /api/v1/query HTTP/1.1\r\nHost: localhost\r\nX-User-Id: {USER}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        answer = await self._reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
        assert head.startswith(b"http/1.1 200"), head
        assert b'"count":1' in answer, answer

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


async def _connect(address: str, servers: list[psutil.Process]) -> list[_Connection]:
    """Open connections until each process has CONNECTIONS of them, or many more than that are open.

    The kernel gives a connection to any process, and none to one that is still starting. A connection stays with its
    process, so that a process without any would have nothing to do.
    """
    url = urlsplit(address)
    connections: list[_Connection] = []
    deadline = time.monotonic() + MAX_CONNECT_SECONDS
    while min(_count_connections(server, url.port) for server in servers) < CONNECTIONS:
        assert time.monotonic() < deadline, "a process of `rem serve` gets no connections"
        if len(connections) >= MAX_CONNECTIONS * len(servers):
            connections.pop(0).close()
        connections.append(_Connection(*await asyncio.open_connection(url.hostname, url.port)))
        await connections[-1].look_up(0)
    return connections


def _count_connections(server: psutil.Process, port: int | None) -> int:
    """Return the number of connections of clients that a process has."""
    return sum(
        connection.status == psutil.CONN_ESTABLISHED and connection.laddr.port == port
        for connection in server.net_connections("tcp")
    )


async def _send(connections: list[_Connection], seconds: float) -> int:
    """Send lookups on each connection, one after the other, and return how many were answered."""
    deadline = time.perf_counter() + seconds

    async def send(connection: _Connection, source: random.Random) -> int:
        lookups = 0
        while time.perf_counter() < deadline:
            await connection.look_up(source.randrange(ROWS))
            lookups += 1
        return lookups

    return sum(await asyncio.gather(*(send(item, random.Random(turn)) for turn, item in enumerate(connections))))
