"""The HTTP application, for `uvicorn rem.api.main:app`: routes, middleware and lifespan."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from importlib import import_module
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from fastmcp.server.dependencies import get_http_request
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from rem.agents.service import Agents
from rem.api.audit import AuditMiddleware, RefusalAuditMiddleware
from rem.api.authentication import AuthMiddleware
from rem.api.caller_limits import CallerLimitMiddleware
from rem.api.caller_turns import CallerTurns, RunningCalls, SearchTurnMiddleware, limit_chats, limit_queries
from rem.api.errors import install_error_handlers
from rem.api.handshake import HandshakeMiddleware
from rem.api.metrics import MetricsMiddleware, make_metrics_route
from rem.api.middleware import (
    REQUEST_ID_HEADER,
    BodyLimitMiddleware,
    RequestIdMiddleware,
    RequestLogMiddleware,
)
from rem.api.openapi_errors import COMMON_ERRORS
from rem.api.openapi_security import declare_security
from rem.api.rate_limit import RATE_HEADERS, RateLimitMiddleware, RefusalLimitMiddleware
from rem.api.request_guard import RequestGuardMiddleware, SecurityHeadersMiddleware
from rem.api.routes import (
    admin,
    agents,
    approvals,
    ask,
    auth,
    chat,
    dreams,
    embeddings,
    entities,
    feedback,
    files,
    forget,
    graph,
    health,
    jobs,
    messages,
    models,
    moments,
    oauth,
    profile,
    query,
    responses,
    sample,
    sessions,
    statements,
    tool_gaps,
)
from rem.api.telemetry import export_traces
from rem.api.web import make_web_routes
from rem.app import Rem
from rem.auth.authenticator import Authenticator
from rem.auth.production import check_auth_settings
from rem.auth.providers import LoginProviders
from rem.context import AgentContext
from rem.jobs.worker import run_in_process_worker
from rem.mcp.http import mount_mcp
from rem.metrics import enable_metrics
from rem.rate_limits import RateLimiter
from rem.settings import Settings, get_settings
from rem.tools.env import ToolEnv

DESCRIPTION = """A memory for AI agents: documents, knowledge and events under keys that people can read.

The headers `X-User-Id` (an e-mail address or an id) and `X-Tenant-Id` identify the caller. Users see their own memory
and the rows that their workspace shares. Every error has the form
`{"error": {"message", "type", "code", "param", "details"}}`.
"""
TAGS: list[dict[str, Any]] = [
    {"name": "chat", "description": "Chat with agents that have a memory, by OpenAI's protocol."},
    {"name": "models", "description": "The language models that can answer."},
    {"name": "query", "description": "Query the memory directly."},
    {"name": "sessions", "description": "The caller's sessions, and the sessions that others share with the caller."},
    {"name": "messages", "description": "The messages of sessions, word for word."},
    {"name": "approvals", "description": "Actions of agents that wait for the consent of the caller."},
    {"name": "feedback", "description": "Ratings of answers."},
    {"name": "moments", "description": "Events, by time."},
    {"name": "dreams", "description": "What dreams derive at night: their runs and statements."},
    {"name": "files", "description": "Ingested files and their processing status."},
    {"name": "agents", "description": "Agents that are defined in YAML."},
    {"name": "entities", "description": "All rows of the memory, to read and to change."},
    {"name": "auth", "description": "Log in and out, renew tokens, and manage API keys."},
    {
        "name": "admin",
        "description": "Users, sessions, statistics and audit log of the tenant, for administrators.",
    },
    {"name": "health", "description": "The state of the service."},
]
SLOW_MODULES = (
    "numpy",
    "genai_prices.data",
    "key_value.aio.adapters.pydantic",
    "key_value.aio.stores.memory",
    "rem.dreams.dreamer",
    "rem.dreams.entities.dream",
    "rem.dreams.moments.dream",
    "rem.dreams.affinity",
    "rem.dreams.ontology.dream",
    "rem.dreams.profiles.dream",
    "rem.ingest.readers.dispatch",
    "rem.ingest.readers.documents",
    "rem.ingest.readers.html",
)
"""Modules that a request imports when it needs them."""
MAX_JSON_BYTES = 8_000_000
"""A larger body without audio or files would take too long to parse. Long texts are uploaded as files."""
MAX_OTHER_BYTES = 1_000_000
"""Room in a body for everything besides the audio or the files."""


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return an application with its own Rem, which is open while the application runs."""
    settings = settings or get_settings()
    app = FastAPI(
        title="REM",
        version=version("remstack"),
        description=DESCRIPTION,
        openapi_tags=TAGS,
        lifespan=_lifespan,
        middleware=_build_middleware(settings),
        # A redirect would lose the Authorization header.
        redirect_slashes=False,
        # FastAPI's own pages load their scripts from a public server; the web interface has one (`make_web_routes`).
        docs_url=None,
        openapi_url=None,
        redoc_url=None,
        generate_unique_id_function=_operation_id,
    )
    check_auth_settings(settings)
    app.state.settings = settings
    app.state.is_only_app = False
    app.state.caller_turns = CallerTurns(max(1, settings.postgres.pool_max_size // 2))
    app.state.embedding_turns = CallerTurns(1)
    app.state.running_chats = limit_chats(settings.api.max_chats_per_caller)
    app.state.running_queries = limit_queries(settings.api.max_queries_per_caller)
    app.state.trusts_headers = not settings.auth.enabled
    app.state.authenticator = Authenticator(settings, None)
    app.state.login_providers = LoginProviders(settings.auth) if settings.auth.has_login else None
    install_error_handlers(app)
    _include_routes(app)
    declare_security(app, settings)
    return app


def _include_routes(app: FastAPI) -> None:
    app.router.routes += _build_routes()
    app.router.routes += oauth.make_oauth_routes()
    app.router.routes += make_web_routes()
    if app.state.settings.metrics.enabled:
        enable_metrics()
        app.router.routes.append(make_metrics_route(app.state.settings))
    mount_mcp(
        app,
        partial(_make_mcp_env, app),
        allowed_hosts=app.state.settings.api.allowed_hosts,
        allowed_origins=app.state.settings.api.cors_origins,
        middleware=[SearchTurnMiddleware(app.state.caller_turns)],
    )


@cache
def _build_routes() -> list[BaseRoute]:
    """Return the routes of the API. They know no application, so they are built once: that takes 0.2 s."""
    builder = FastAPI(openapi_url=None, generate_unique_id_function=_operation_id)
    openai_routers = [chat.router, responses.router, embeddings.router, models.router]
    routers = [*openai_routers, query.router, ask.router, sessions.router, messages.router, feedback.router]
    routers += [approvals.router, moments.router, files.router, agents.router, tool_gaps.router, entities.router]
    routers += [graph.router, statements.router, dreams.router, forget.router, admin.router]
    routers += [jobs.router, profile.router, sample.router]
    api = APIRouter(prefix="/api/v1", responses=COMMON_ERRORS)
    for router in routers:
        api.include_router(router)
    builder.include_router(api)
    # The paths that OpenAI's clients use if they are given only the host.
    for router in openai_routers:
        builder.include_router(router, prefix="/v1", responses=COMMON_ERRORS, include_in_schema=False)
    for router in (auth.router, auth.dev_router):
        builder.include_router(router, responses=COMMON_ERRORS)
    builder.include_router(health.router)
    return builder.router.routes


async def _make_mcp_env(app: FastAPI, context: AgentContext) -> ToolEnv:
    rem: Rem | None = app.state.rem
    context = context if rem is None else await rem.resolve_session(context)
    env: ToolEnv = app.state.agents.env_with_delegate(context)
    chats: RunningCalls = app.state.running_chats
    return chats.count_agents(env, get_http_request().scope)


def _build_middleware(settings: Settings) -> list[Middleware]:
    """Return the middleware, outermost first."""
    # Audio is in base64, which takes four bytes for three.
    max_audio_bytes = settings.audio.max_bytes * 4 // 3 + MAX_OTHER_BYTES
    counting = [Middleware(MetricsMiddleware)] if settings.metrics.enabled else []
    return [
        *counting,
        Middleware(ProxyHeadersMiddleware, trusted_hosts=settings.api.trusted_proxies),
        Middleware(
            CORSMiddleware,
            allow_origins=settings.api.cors_origins,
            allow_credentials="*" not in settings.api.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["ETag", "X-Session-Id", REQUEST_ID_HEADER, "Retry-After", *RATE_HEADERS],
        ),
        Middleware(SecurityHeadersMiddleware, requires_https=settings.is_production),
        Middleware(RequestIdMiddleware),
        Middleware(RefusalAuditMiddleware),
        Middleware(RefusalLimitMiddleware),
        Middleware(AuthMiddleware, settings=settings),
        Middleware(RequestLogMiddleware),
        Middleware(
            RequestGuardMiddleware,
            allowed_hosts=settings.api.allowed_hosts,
            allowed_origins=settings.api.cors_origins,
        ),
        Middleware(RateLimitMiddleware),
        Middleware(AuditMiddleware),
        Middleware(CallerLimitMiddleware, max_seconds=settings.postgres.read_timeout_seconds),
        Middleware(
            BodyLimitMiddleware,
            max_bytes=min(MAX_JSON_BYTES, max_audio_bytes),
            max_bytes_by_path={
                "/api/v1/files": settings.ingest.max_bytes + MAX_OTHER_BYTES,
                **dict.fromkeys(("/api/v1/chat/completions", "/v1/chat/completions"), max_audio_bytes),
            },
            max_seconds=settings.api.body_seconds,
            form_paths=("/api/v1/files",),
        ),
        Middleware(HandshakeMiddleware),
    ]


def _operation_id(route: APIRoute) -> str:
    return route.name


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    with export_traces(settings):
        async with _open_memory(settings) as rem:
            app.state.rem = rem
            app.state.authenticator = Authenticator(settings, rem.database if rem else None)
            app.state.agents = Agents(None, settings) if rem is None else rem.agents
            app.state.rate_limiter = _make_rate_limiter(rem, settings)
            app.state.audit_log = rem.audit_log if rem is not None and rem.audit_log.is_enabled else None
            await app.state.agents.warm_up()
            importing = asyncio.ensure_future(asyncio.to_thread(_import_slow_modules))
            if app.state.is_only_app:
                _shorten_pauses()
            try:
                async with run_in_process_worker(rem, settings):
                    yield
            finally:
                await importing
                if app.state.rate_limiter is not None:
                    await app.state.rate_limiter.close()
                # The audit log is still being written while the last answers are stored.
                await app.state.agents.close()


def _import_slow_modules() -> None:
    """Import what the first requests need, in a thread: in the event loop, other requests would wait for it."""
    for name in SLOW_MODULES:
        import_module(name)


def _shorten_pauses() -> None:
    """Let one request delay the others less, in a process that does nothing but serve.

    A garbage collection stops all threads. It would look at everything that the start has created, for 0.2 s each
    time. A thread that works for one request lets the event loop go on after 1 ms instead of 5 ms.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(0.001)


def _make_rate_limiter(rem: Rem | None, settings: Settings) -> RateLimiter | None:
    if not settings.limits_rates:
        return None
    return RateLimiter(None if rem is None else rem.database, settings.rate_limit)


@asynccontextmanager
async def _open_memory(settings: Settings) -> AsyncIterator[Rem | None]:
    """Open REM and index in the background, unless workers do; yield None if the database is switched off."""
    if not settings.postgres.enabled:
        yield None
        return
    async with Rem.open(settings) as rem, rem.audit_log.writing():
        # Without a worker of its own, the process leaves the work of the CPU to the processes of `rem worker`.
        indexer = asyncio.create_task(rem.keep_indexed()) if settings.worker.in_process else None
        try:
            yield rem
        finally:
            if indexer:
                indexer.cancel()
                await asyncio.wait([indexer])


app = create_app()
app.state.is_only_app = True
