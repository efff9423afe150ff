"""Recognise the user's confirmation of a change that was shown, and carry the change out. No model takes part in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.agents.chat import FinishReason, Usage
from rem.agents.decisions import Confirmation, parse_confirmation
from rem.agents.local.model import LOCAL_MODEL
from rem.agents.tool_gaps import ToolGapReport
from rem.errors import NotFoundError, RemError
from rem.events import AnyEvent, TextEvent

if TYPE_CHECKING:
    from rem.forgetting.change_requests import ChangeRequests, PendingRequest

IN_CHAT = "user in chat"


async def find_confirmation(
    changes: ChangeRequests, text: str, session_id: str | None, agent: str
) -> ConfirmationRun | None:
    """Return the run of the change that a user's message decides on; None if it decides on none.

    A plain yes or no counts only right after the preview, in the same session. A code counts anywhere.
    """
    confirmation = parse_confirmation(text)
    if confirmation is None:
        return None
    if confirmation.code is not None:
        found = await changes.find_pending(confirmation.code)
        return ConfirmationRun(changes, confirmation, found[0] if found else None, agent)
    pending = None if session_id is None else await changes.find_just_shown(UUID(session_id))
    return None if pending is None else ConfirmationRun(changes, confirmation, pending, agent)


class ConfirmationRun:
    """Carries out or drops one change, and says so."""

    usage = Usage()
    tool_gaps: list[ToolGapReport] = []  # noqa: RUF012  # never changed

    def __init__(
        self, changes: ChangeRequests, confirmation: Confirmation, pending: PendingRequest | None, agent: str
    ) -> None:
        self.agent = agent
        self.model = LOCAL_MODEL
        self.finish_reason: FinishReason = "stop"
        self.output: dict[str, Any] | None = None
        self._changes = changes
        self._confirmation = confirmation
        self._pending = pending

    async def events(self) -> AsyncGenerator[AnyEvent]:
        """Carry out the change, and yield the answer. An error becomes the answer: nothing was changed then."""
        try:
            text = await self._decide()
        except RemError as error:
            text = f"Nothing was changed. {error}"
        yield TextEvent(content=text, agent=self.agent)

    async def _decide(self) -> str:
        if self._pending is None:
            raise NotFoundError(
                f"Nothing waits for the confirmation {self._confirmation.code}: it was decided before, or has expired."
            )
        if not self._confirmation.is_confirmed:
            await self._changes.reject(self._pending.code, by=IN_CHAT)
            return "All right: nothing was changed."
        numbers: Sequence[int] | None = self._confirmation.numbers
        report = await self._changes.confirm(self._pending.code, by=IN_CHAT, numbers=numbers)
        return report.summary
