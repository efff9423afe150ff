"""The HTTP application: `uvicorn rem.api.main:app`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from rem.agents.service import Agents
from rem.api import errors, middleware
from rem.api.middleware import BodyLimitMiddleware, HostCheckMiddleware, RequestLogMiddleware
from rem.api.openapi_errors import COMMON_ERRORS
from rem.api.routes import agents, entities, feedback, files, health, messages, models, moments, query, sessions
from rem.api.routes.chat import router as chat
from rem.api.telemetry import export_traces
from rem.app import Rem
from rem.mcp.http import mount_mcp
from rem.settings import Settings, get_settings
from rem.worker.in_process import run_in_process_worker

_DESCRIPTION = """A memory for AI agents: what they saw, what they know and what happened, under readable keys.

Who asks is said by `X-User-Id` (an e-mail address or an id) and `X-Tenant-Id`; everyone sees their own memory and what
their workspace shares. Every error has the shape `{"error": {"message", "type", "code", "param", "details"}}`.
"""
_TAGS: list[dict[str, Any]] = [
    {"name": "chat", "description": "Agents that remember, by OpenAI's protocol."},
    {"name": "models", "description": "Which language models answer."},
    {"name": "query", "description": "The memory, asked directly."},
    {"name": "sessions", "description": "Conversations: theirs, and those that others share with them."},
    {"name": "messages", "description": "What was said, word for word."},
    {"name": "feedback", "description": "What people think of answers."},
    {"name": "moments", "description": "What happened, by time."},
    {"name": "files", "description": "Documents that are taken in, and what became of them."},
    {"name": "agents", "description": "Agents that are defined in YAML."},
    {"name": "entities", "description": "Everything that is remembered, to be seen and corrected."},
    {"name": "health", "description": "Whether the service works."},
]
_ROOM_BESIDE_AUDIO = _ROOM_BESIDE_FILES = 1_000_000


def create_app(settings: Settings | None = None) -> FastAPI:
    """An application with a REM of its own, open as long as it runs."""
    settings = settings or get_settings()
    app = FastAPI(
        title="REM",
        version=version("remstack"),
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        lifespan=_running,
        middleware=_middleware(settings),
        # A redirect would lose the Authorization header.
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    app.state.settings = settings
    # Nobody has to log in yet, so who they are is what they say.
    app.state.trusts_headers = True
    errors.install(app)
    _include_routes(app)
    return app


def _include_routes(app: FastAPI) -> None:
    routers = [chat, models.router, query.router, sessions.router, messages.router, feedback.router]
    routers += [moments.router, files.router, agents.router, entities.router]
    api = APIRouter(prefix="/api/v1", responses=COMMON_ERRORS)
    for router in routers:
        api.include_router(router)
    app.include_router(api)
    # Where OpenAI's clients look, if they are given only the host.
    for router in (chat, models.router):
        app.include_router(router, prefix="/v1", responses=COMMON_ERRORS, include_in_schema=False)
    app.include_router(health.router)
    mount_mcp(
        app,
        lambda context: app.state.agents.env_with_delegate(context),
        allowed_hosts=app.state.settings.api.allowed_hosts,
        allowed_origins=app.state.settings.api.cors_origins,
    )


def _middleware(settings: Settings) -> list[Middleware]:
    """From the outside in. Authentication stands between CORS and the log."""
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=settings.api.cors_origins,
            allow_credentials="*" not in settings.api.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["ETag", "X-Session-Id", middleware.REQUEST_ID_HEADER],
        ),
        Middleware(RequestLogMiddleware),
        Middleware(HostCheckMiddleware, allowed=settings.api.allowed_hosts),
        Middleware(
            BodyLimitMiddleware,
            most_bytes=settings.audio.max_bytes * 4 // 3 + _ROOM_BESIDE_AUDIO,
            by_path={"/api/v1/files": settings.ingest.max_bytes + _ROOM_BESIDE_FILES},
        ),
    ]


def _operation_id(route: APIRoute) -> str:
    return route.name


@asynccontextmanager
async def _running(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    with export_traces(settings):
        async with _memory(settings) as rem:
            app.state.rem = rem
            app.state.agents = Agents(rem, settings)
            await app.state.agents.warm_up()
            try:
                async with run_in_process_worker(rem, app.state.agents, settings):
                    yield
            finally:
                await app.state.agents.close()


@asynccontextmanager
async def _memory(settings: Settings) -> AsyncIterator[Rem | None]:
    """The memory, with what is done for it in the background; None if it is switched off."""
    if not settings.postgres.enabled:
        yield None
        return
    async with Rem.open(settings) as rem:
        indexing = asyncio.create_task(rem.keep_indexed())
        try:
            yield rem
        finally:
            indexing.cancel()
            await asyncio.wait([indexing])


app = create_app()
