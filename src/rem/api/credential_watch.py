"""CredentialWatch: end a long request when the credential that it came with is revoked."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING

from starlette.types import Scope

from rem.auth.authenticator import CACHE_SECONDS
from rem.errors import RemError, ServerStoppingError, UnauthorizedError

if TYPE_CHECKING:
    from rem.auth.authenticator import Authenticator
    from rem.auth.identity import Identity

INTERRUPTION = "interruption"
"""Names the error in the state of a request that is cancelled for another reason than the end of the server."""


class CredentialWatch:
    """Cancels its block, the serving of one request, and raises UnauthorizedError when the credential is revoked.

    It looks as often as a process forgets whom a credential belongs to. A token that expires meanwhile is not revoked.
    """

    __slots__ = ("_authenticator", "_check", "_identity", "_scope", "_task", "_timer")

    def __init__(self, authenticator: Authenticator, identity: Identity, scope: Scope) -> None:
        self._authenticator = authenticator
        self._identity = identity
        self._scope = scope
        self._check: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        self._schedule()

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._check is not None:
            self._check.cancel()
        interruption = self._scope["state"].get(INTERRUPTION)
        if isinstance(error, asyncio.CancelledError) and interruption is not None and self._task is not None:
            self._task.uncancel()
            raise interruption

    def _schedule(self) -> None:
        # A timer costs a short request nearly nothing; a task would cost more.
        self._timer = asyncio.get_running_loop().call_later(CACHE_SECONDS, self._start_check)

    def _start_check(self) -> None:
        self._check = asyncio.create_task(self._look())

    async def _look(self) -> None:
        try:
            is_valid = await self._authenticator.is_valid(self._identity)
        except RemError:
            # The database does not answer: the next look decides.
            is_valid = True
        if is_valid:
            self._schedule()
        elif self._task is not None:
            self._scope["state"][INTERRUPTION] = UnauthorizedError("The login or key was revoked: log in again.")
            self._task.cancel()


def get_interruption(scope: Scope) -> RemError:
    """Return why a request is cancelled."""
    error: RemError = scope.get("state", {}).get(INTERRUPTION) or ServerStoppingError()
    return error
