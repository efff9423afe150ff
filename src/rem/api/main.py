"""The HTTP application: `uvicorn rem.api.main:app`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI

from rem.api import health
from rem.app import Rem


def create_app() -> FastAPI:
    """An application with a REM of its own, open as long as it runs."""
    app = FastAPI(title="REM", version=version("remstack"), lifespan=_open_rem)
    app.include_router(health.router)
    return app


@asynccontextmanager
async def _open_rem(app: FastAPI) -> AsyncIterator[None]:
    async with Rem.open() as rem:
        app.state.rem = rem
        indexing = asyncio.create_task(rem.keep_indexed())
        try:
            yield
        finally:
            indexing.cancel()
            await asyncio.wait([indexing])


app = create_app()
