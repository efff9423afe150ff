"""The card that asks the user for a decision on a request, and its reserved id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from rem.errors import InvalidInputError
from rem.events import ActionCard, CardAction, CardInput
from rem.models.approval import RiskLevel

if TYPE_CHECKING:
    from rem.models import Approval

CARD_PREFIX = "approval-"
"""Ids of cards that begin so are REM's own: a model cannot make a card with such an id."""
APPROVE, REJECT, EDIT, APPROVE_EDITED = "approve", "reject", "edit", "approve-edited"
_NUMBERS, _PARAMETERS, REASON = "only", "parameters", "reason"


def make_card(approval: Approval, prompt: str, rows: int = 0) -> ActionCard:
    """Return the card for a request. `rows` is how many numbered rows the prompt has, of which some can be chosen."""
    is_final = approval.risk_level is RiskLevel.IRREVERSIBLE
    data = {"approval_id": str(approval.id)}
    inputs = [CardInput(id=REASON, label="Reason (optional)", placeholder="Why?")]
    if rows > 1:
        inputs.insert(0, CardInput(id=_NUMBERS, label="Only these numbers (optional)", placeholder="1, 3"))
    return ActionCard(
        id=f"{CARD_PREFIX}{approval.id}",
        prompt=prompt,
        display_style="modal" if is_final else "inline",
        actions=[
            CardAction(id=APPROVE, title="Approve", style="destructive" if is_final else "primary", data=data),
            CardAction(id=REJECT, title="Reject", style="secondary", data=data),
            CardAction(type="Action.ShowCard", id=EDIT, title="Edit", card=_make_edit_card(approval)),
        ],
        inputs=inputs,
        timeout_ms=None if approval.timeout_seconds is None else approval.timeout_seconds * 1000,
    )


def parse_card_id(card_id: str) -> UUID | None:
    """Return the id of the request that a card asks about; None if it is another card."""
    if not card_id.startswith(CARD_PREFIX):
        return None
    try:
        return UUID(card_id.removeprefix(CARD_PREFIX))
    except ValueError:
        return None


def read_inputs(inputs: dict[str, bool | str], action_id: str) -> tuple[list[int] | None, dict[str, Any] | None, str]:
    """Return what the user chose on the card: numbers of rows, edited arguments, and a reason."""
    numbers = str(inputs.get(_NUMBERS, "")).replace(",", " ").split()
    if not all(number.isdecimal() for number in numbers):
        raise InvalidInputError(f"{_NUMBERS}: give numbers of the list, such as 1, 3.")
    edited = None
    if action_id == APPROVE_EDITED:
        edited = _parse_parameters(str(inputs.get(_PARAMETERS, "")))
    return [int(number) for number in numbers] or None, edited, str(inputs.get(REASON, ""))


def _make_edit_card(approval: Approval) -> ActionCard:
    return ActionCard(
        id=f"{CARD_PREFIX}{approval.id}-edit",
        prompt="Change the arguments, then approve.",
        inputs=[
            CardInput(
                id=_PARAMETERS,
                label="Arguments, as JSON",
                is_multiline=True,
                value=orjson.dumps(approval.parameters, option=orjson.OPT_INDENT_2).decode(),
            )
        ],
        actions=[CardAction(id=APPROVE_EDITED, title="Approve with these arguments", style="primary")],
    )


def _parse_parameters(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(f"{_PARAMETERS}: is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise InvalidInputError(f"{_PARAMETERS}: must be a JSON object with the arguments of the tool.")
    return value
