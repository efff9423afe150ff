"""Decide on a change that was shown: by exactly yes or no, by `/approve` or `/reject`, or by a card.

No model takes part: none can confirm, and none repeats what is forgotten.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.agents.chat import ClientToolCall, FinishReason, Usage
from rem.agents.model_registry import LOCAL_MODEL
from rem.agents.tool_gaps import ToolGapReport
from rem.approvals.cards import REJECT, make_card, parse_card_id, read_inputs
from rem.errors import NotFoundError, RemError
from rem.events import AnyEvent, TextEvent
from rem.models import Approval
from rem.sessions.card_answers import CardAnswer, check_card_answer
from rem.tools.approved_calls import carry_out
from rem.tools.consent import Decision
from rem.tools.env import ToolEnv

if TYPE_CHECKING:
    from rem.approvals.approvals import Approvals

MAX_MESSAGE_CHARS = 200
_ANSWERS = {"yes": True, "no": False}
_COMMAND = re.compile(
    r"/(?P<verb>approve|reject)(?: +(?P<code>[0-9a-f]{6}))?(?: +(?P<numbers>\d{1,3}(?:(?: *, *| +)\d{1,3})*))?"
)
_NUMBER = re.compile(r"\d+")
IN_CHAT = "user in chat"
BY_CARD = "user by card"
REJECTED = "All right: nothing was changed."


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The decision that a message states."""

    is_confirmed: bool
    code: str | None = None
    numbers: tuple[int, ...] | None = None
    """The rows that the user chose; None for all."""


def parse_confirmation(text: str) -> Confirmation | None:
    """Return the decision that a message states and nothing else; None for any other message."""
    if len(text) > MAX_MESSAGE_CHARS:
        return None
    plain = text.strip().lower()
    answer = _ANSWERS.get(plain.rstrip(".!"))
    if answer is not None:
        return Confirmation(answer)
    command = _COMMAND.fullmatch(plain)
    if command is None or (command["numbers"] and command["verb"] == "reject"):
        return None
    numbers = tuple(map(int, _NUMBER.findall(command["numbers"]))) if command["numbers"] else None
    return Confirmation(command["verb"] == "approve", command["code"], numbers)


async def find_confirmation(
    approvals: Approvals, text: str, session_id: str | None
) -> tuple[Approval | NotFoundError, Decision] | None:
    """Return the request that a user's message decides on, with the decision; None if it decides on none.

    A plain yes or no counts only right after the question, in the same session. A code counts anywhere; if no request
    has it, the error says so.
    """
    confirmation = parse_confirmation(text)
    if confirmation is None:
        return None
    decision = Decision(is_approved=confirmation.is_confirmed, by=IN_CHAT, numbers=confirmation.numbers)
    if confirmation.code is not None:
        try:
            return await approvals.get(confirmation.code), decision
        except NotFoundError as error:
            return error, decision
    shown = None if session_id is None else await approvals.find_just_shown(UUID(session_id))
    if shown is None or (confirmation.numbers is not None and "rows" not in shown.proposal):
        return None
    return shown, decision


async def read_card_decision(approvals: Approvals, answer: CardAnswer) -> tuple[Approval, Decision] | None:
    """Return the request that a card of REM decides on, with the decision; None if it is a card of an agent.

    Raise NotFoundError if the caller has no such request, and InvalidInputError if the answer does not fit the card.
    """
    approval_id = parse_card_id(answer.card_id)
    if approval_id is None:
        return None
    approval = await approvals.get(approval_id)
    card = make_card(approval, "", len(approval.proposal.get("rows", ())))
    action, inputs = check_card_answer(card, answer)
    numbers, parameters, reason = read_inputs(inputs, action.id)
    return approval, Decision(
        is_approved=action.id != REJECT, by=BY_CARD, numbers=numbers, parameters=parameters, reason=reason or None
    )


class DecisionRun:
    """The answer to a decision on a request that no run of an agent waits for, or whose tool carries it out itself.

    No model takes part: none can confirm, and none repeats what is forgotten.
    """

    usage = Usage()
    tool_gaps: list[ToolGapReport] = []  # noqa: RUF012  # never changed
    approval: Approval | None = None
    client_calls: Sequence[ClientToolCall] = ()

    def __init__(
        self, env: ToolEnv, request: Approval | RemError, decision: Decision, agent: str, *, raises: bool = False
    ) -> None:
        """Prepare the answer. `request` may be the error of a search for it. With `raises`, errors are raised."""
        self.agent = agent
        self.model = LOCAL_MODEL
        self.finish_reason: FinishReason = "stop"
        self.output: dict[str, Any] | None = None
        self._env = env
        self._request = request
        self._decision = decision
        self._raises = raises

    async def events(self) -> AsyncGenerator[AnyEvent]:
        """Carry out the decision, and yield the answer. An error becomes the answer: nothing was changed then."""
        try:
            text = await self._decide()
        except RemError as error:
            if self._raises:
                raise
            text = f"Nothing was changed. {error}"
        yield TextEvent(content=text, agent=self.agent)

    async def _decide(self) -> str:
        if isinstance(self._request, RemError):
            raise self._request
        if not self._decision.is_approved:
            approvals = self._env.rem.for_user(self._env.scope).approvals
            await approvals.reject(self._request, by=self._decision.by, reason=self._decision.reason)
            return REJECTED
        result = await carry_out(self._env, self._request, self._decision)
        return str(result.get("summary") or f"Done: {self._request.tool_name}.")
