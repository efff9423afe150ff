"""A small load balancer: each connection goes to the next server in turn that accepts it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

CHUNK_BYTES = 65_536


@asynccontextmanager
async def running_proxy(ports: Sequence[int]) -> AsyncIterator[str]:
    """Balance connections between the servers on these ports. Yield the address of the proxy."""
    balancer = _Balancer(ports)
    server = await asyncio.start_server(balancer.forward, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await balancer.end()


class _Balancer:
    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = list(ports)
        self._tasks: set[asyncio.Task[None]] = set()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy all bytes in both directions until one side ends."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        connected = await self._connect()
        if connected is None:
            writer.close()
            return
        upstream_reader, upstream_writer = connected
        try:
            await asyncio.gather(_copy(reader, upstream_writer), _copy(upstream_reader, writer))
        except asyncio.CancelledError:
            upstream_writer.transport.abort()
            writer.transport.abort()

    async def end(self) -> None:
        """End all connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # An aborted connection is closed in the next round of the loop.
        await asyncio.sleep(0)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self._ports:
            self._ports.append(self._ports.pop(0))
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", self._ports[-1])
        return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    writer.close()
