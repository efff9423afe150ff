"""Send requests to a deployment, and remember which writes were acknowledged."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import httpx2 as httpx

from tests.jobs.conftest import eventually

CLIENTS = 4
RESOURCES = "/api/v1/entities/resources"


class WriteLoad:
    """Clients that store one resource after another until the block ends."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._numbers = count()
        self._has_ended = False
        self.acknowledged: list[str] = []
        self.failures: Counter[str] = Counter()
        self.unexpected: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send requests while the block runs."""
        clients = [asyncio.create_task(self._write(number)) for number in range(CLIENTS)]
        try:
            yield
        finally:
            self._has_ended = True
            await asyncio.gather(*clients)

    async def wait_for_writes(self, more: int) -> None:
        """Wait until so many more writes are acknowledged."""
        target = len(self.acknowledged) + more

        async def has_more() -> bool:
            return len(self.acknowledged) >= target

        await eventually(has_more, 120)

    async def _write(self, client_number: int) -> None:
        async with httpx.AsyncClient(
            base_url=self._address, timeout=60, headers={"X-User-Id": f"user-{client_number}"}
        ) as client:
            while not self._has_ended:
                name = f"row {next(self._numbers)}"
                try:
                    response = await client.post(RESOURCES, json={"name": name, "content": name})
                except httpx.TransportError as error:
                    self.failures[type(error).__name__] += 1
                    await asyncio.sleep(0.05)
                    continue
                self._record(name, response)
                if response.status_code == 503:
                    await asyncio.sleep(0.1)

    def _record(self, name: str, response: httpx.Response) -> None:
        if response.status_code == 201:
            self.acknowledged.append(name)
        elif response.status_code == 503 and "Retry-After" in response.headers:
            self.failures["503"] += 1
        else:
            self.unexpected.append(f"{response.status_code}: {response.text}")
