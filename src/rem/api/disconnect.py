"""Cancel the work of a request when its client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import ClientDisconnect, Request

if TYPE_CHECKING:
    from starlette.types import Receive

T = TypeVar("T")


async def cancel_on_disconnect(request: Request, coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of the coroutine. Cancel it and raise ClientDisconnect if the client disconnects first."""
    work = asyncio.create_task(coroutine)
    listener = asyncio.create_task(wait_for_disconnect(request.receive))
    try:
        await asyncio.wait((work, listener), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        for task in (work, listener):
            task.cancel()
        await asyncio.wait((work, listener))


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
