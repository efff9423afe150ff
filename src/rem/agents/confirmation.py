"""Recognise the user's confirmation of a change that was shown, and carry the change out. No model takes part in it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.agents.chat import FinishReason, Usage
from rem.agents.local.model import LOCAL_MODEL
from rem.agents.tool_gaps import ToolGapReport
from rem.errors import NotFoundError, RemError
from rem.events import AnyEvent, TextEvent

if TYPE_CHECKING:
    from rem.forgetting.change_requests import ChangeRequests, PendingRequest

MAX_CONFIRMATION_CHARS = 200
IN_CHAT = "user in chat"
_OBJECT = r"(?:it|them|these|those|this|that|all|both|all of (?:it|them)|everything)"
_VERB = r"(?:forget|delete|remove|erase|correct|change|replace|do|go ahead with)"
_YES = re.compile(
    rf"(?:yes|yep|yeah|yup|sure|ok|okay|confirm|confirmed|i confirm|please do|do it|go ahead|ja|oui|sí|si|はい|是的?)"
    rf"(?:[\s,.!]+(?:please|sure|yes|do it|go ahead|(?:please )?{_VERB}(?: {_OBJECT})?(?: please)?|all(?: of them)?))*"
    rf"|(?:please )?(?:forget|delete|remove|erase) {_OBJECT}(?: please)?"
)
_NO = re.compile(
    r"(?:no|nope|nah|cancel|stop|don['’]?t|do not|never mind|nevermind|nein|non|いいえ|不)"
    rf"(?:[\s,.!]+(?:thanks|thank you|please|no|stop|cancel|(?:do(?:n['’]?t| not) )?\w+ {_OBJECT}))*"
    rf"|keep {_OBJECT}|(?:do not|don['’]?t) {_VERB} {_OBJECT}"
)
_CODE = re.compile(r"(?:(?P<yes>(?:yes[, ]+)?confirm)|(?P<no>(?:no[, ]+)?(?:reject|cancel)))\s+(?P<code>[0-9a-f]{6})")
_NUMBERS = re.compile(
    r"(?:yes[\s,.!]+)?(?:please )?(?:(?:forget|delete|remove|erase|correct|change) )?(?:only|just)?\s*"
    r"(?:(?:the )?(?:numbers?|no\.?|#)\s*)?(?P<numbers>\d{1,3}(?:(?:\s*(?:,|and|&|und|et|y)\s*)+\d{1,3})*)"
)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The decision that a message states."""

    is_confirmed: bool
    code: str | None = None
    numbers: tuple[int, ...] | None = None
    """The rows that the user chose; None for all."""


def parse_confirmation(text: str) -> Confirmation | None:
    """Return the decision that a message states and nothing else; None for any other message."""
    plain = " ".join(text.lower().replace("`", "").split()).strip(" .!\"'“”")
    if not plain or len(plain) > MAX_CONFIRMATION_CHARS:
        return None
    if code := _CODE.fullmatch(plain):
        return Confirmation(code["yes"] is not None, code["code"])
    if _YES.fullmatch(plain):
        return Confirmation(True)
    if _NO.fullmatch(plain):
        return Confirmation(False)
    if chosen := _NUMBERS.fullmatch(plain):
        return Confirmation(True, numbers=tuple(int(number) for number in _NUMBER.findall(chosen["numbers"])))
    return None


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
