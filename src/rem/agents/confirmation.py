"""Recognise in the user's own words the decision on a request that was shown. No model takes part in it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from rem.agents.decisions import parse_confirmation
from rem.approvals.cards import REJECT, make_card, parse_card_id, read_inputs
from rem.errors import NotFoundError
from rem.memory.card_answers import CardAnswer, check_card_answer
from rem.tools.consent import Decision

if TYPE_CHECKING:
    from rem.approvals.approvals import Approvals
    from rem.models import Approval

IN_CHAT = "user in chat"
BY_CARD = "user by card"


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
