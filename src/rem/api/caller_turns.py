"""Limit how many requests of one caller run at once, so that other callers find a free database connection."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from fastmcp.server.dependencies import get_http_request
from fastmcp.server.middleware import Middleware
from starlette.types import Scope

from rem.api.rate_limit import find_caller
from rem.auth.identity import Identity
from rem.db.database import taking_turns
from rem.errors import RemError, TooManyChatsError, TooManyQueriesError
from rem.rate_limits import LimitedCaller
from rem.tools.env import ToolEnv

if TYPE_CHECKING:
    from fastmcp.server.middleware import CallNext, MiddlewareContext

SEARCH_TOOLS = frozenset(("search_rem", "search", "lookup", "fuzzy", "traverse"))
QUERY_SHARES_PER_ADDRESS = 2
"""Users of one address without a login who may use their whole share of queries at the same time."""


class CallerTurns:
    """Gives each caller a number of turns. Its other requests wait, in their order."""

    def __init__(self, turns_per_caller: int) -> None:
        self._turns_per_caller = turns_per_caller
        self._turns: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, caller: Hashable) -> asyncio.Semaphore:
        """Return the turns of a caller, for `async with`."""
        turns = self._turns.get(caller)
        if turns is None:
            turns = self._turns[caller] = asyncio.Semaphore(self._turns_per_caller)
        return turns


class SearchTurnMiddleware(Middleware):
    """Lets each search over MCP wait for a turn of its caller, and keep it, as a query over HTTP does."""

    def __init__(self, turns: CallerTurns) -> None:
        self._turns = turns

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Run a tool. One that may wait for a model takes a turn each time that it uses the database."""
        message = context.message
        if message.name not in SEARCH_TOOLS or (message.arguments or {}).get("mode") == "natural-language":
            return await call_next(context)
        scope = get_http_request().scope
        async with self._turns.of(find_caller(scope.get("state", {}).get("user"), scope)):
            with taking_turns(None):
                return await call_next(context)


class RunningCalls:
    """Counts the running calls of each caller in this process, and refuses one too many."""

    def __init__(self, max_per_caller: int, max_per_address: int, refuse: Callable[[int], RemError]) -> None:
        self._max_per_caller = max_per_caller
        self._max_per_address = max_per_address
        self._refuse = refuse
        self._running: Counter[LimitedCaller] = Counter()

    @contextmanager
    def counted(self, scope: Scope) -> Iterator[None]:
        """Count the call of a request while the block runs. Raise the error if its caller has too many.

        A caller without a login counts by its address, too: it could name another user with each request.
        """
        identity: Identity | None = scope.get("state", {}).get("user")
        limits = {find_caller(identity, scope): self._max_per_caller}
        if identity is None or not identity.is_authenticated:
            limits.setdefault(find_caller(None, scope), self._max_per_address)
        for caller, limit in limits.items():
            if self._running[caller] >= limit:
                raise self._refuse(limit)
        self._running.update(limits.keys())
        try:
            yield
        finally:
            self._running.subtract(limits.keys())
            for caller in limits:
                if not self._running[caller]:
                    del self._running[caller]

    def count_agents(self, env: ToolEnv, scope: Scope) -> ToolEnv:
        """Return an environment of tools whose agents count as calls of the caller of a request."""
        delegate = env.delegate
        if delegate is None:
            return env

        async def run_agent(agent_name: str, text: str, timeout_seconds: float) -> dict[str, Any]:
            with self.counted(scope):
                return await delegate(agent_name, text, timeout_seconds)

        return replace(env, delegate=run_agent)


def limit_chats(max_per_caller: int) -> RunningCalls:
    """Return the counter of chats. Without a login, all callers of one address share the limit."""
    return RunningCalls(
        max_per_caller,
        max_per_caller,
        lambda limit: TooManyChatsError(
            f"You have {limit} running chats: wait for one of their answers before you ask again."
        ),
    )


def limit_queries(max_per_caller: int) -> RunningCalls:
    """Return the counter of queries and calls of MCP. Without a login, an address has a few shares."""
    return RunningCalls(
        max_per_caller,
        max_per_caller * QUERY_SHARES_PER_ADDRESS,
        lambda limit: TooManyQueriesError(
            f"{limit} of your queries are running or waiting: wait for one of their results before you send more."
        ),
    )


def find_turns(scope: Scope) -> asyncio.Semaphore:
    """Return the turns of the caller of a request."""
    identity: Identity | None = scope.get("state", {}).get("user")
    turns: CallerTurns = scope["app"].state.caller_turns
    return turns.of(find_caller(identity, scope))
