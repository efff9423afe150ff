"""Limit how many requests of one caller run at once, so that other callers find a free database connection."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from weakref import WeakValueDictionary

from starlette.types import Scope

from rem.api.rate_limit import find_caller
from rem.auth.identity import Identity


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


def find_turns(scope: Scope) -> asyncio.Semaphore:
    """Return the turns of the caller of a request."""
    identity: Identity | None = scope.get("state", {}).get("user")
    turns: CallerTurns = scope["app"].state.caller_turns
    return turns.of(find_caller(identity, scope))
