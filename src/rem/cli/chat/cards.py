"""Answer a card of an agent in the terminal: fill in its inputs, and choose one of its buttons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rem.approvals.cards import REASON, REJECT, parse_card_id
from rem.events import ActionCard, CardAction, CardChoice, CardInput
from rem.sessions.card_answers import CardAnswer

if TYPE_CHECKING:
    from rem.cli.chat.prompt import Prompt
    from rem.cli.chat.screen import Screen

_YES = ("y", "yes", "true", "1", "on")


async def answer_card(card: ActionCard, screen: Screen, prompt: Prompt) -> CardAnswer | str | None:
    """Show a card and return the user's answer: a text if the user writes a message instead, None to leave it open."""
    if parse_card_id(card.id) is None:
        # What asks for consent stands in the text already.
        screen.say(card.prompt)
    while True:
        action = await _choose_action(card, screen, prompt)
        if not isinstance(action, CardAction):
            return action
        if action.type == "Action.OpenUrl":
            screen.say(f"Open {action.url} in your browser.")
            continue
        if action.type == "Action.ShowCard" and action.card is not None:
            revealed = {"id": card.id, "prompt": action.card.prompt or action.title}
            return await answer_card(action.card.model_copy(update=revealed), screen, prompt)
        inputs: dict[str, bool | str] = {}
        for field in _list_inputs(card, action):
            value = await _ask_input(field, screen, prompt)
            if value is not None:
                inputs[field.id] = value
        return CardAnswer(card_id=card.id, action_id=action.id, inputs=inputs)


def _list_inputs(card: ActionCard, action: CardAction) -> list[CardInput]:
    """Return the inputs that go with a button: to a request for consent, a reason goes with a refusal alone."""
    if parse_card_id(card.id) is not None:
        return [field for field in card.inputs if (field.id == REASON) == (action.id == REJECT)]
    return [] if action.style == "secondary" else card.inputs


async def _choose_action(card: ActionCard, screen: Screen, prompt: Prompt) -> CardAction | str | None:
    for number, action in enumerate(card.actions, 1):
        mark = "  (cannot be undone)" if action.style == "destructive" else ""
        screen.say(f"  {number}. {action.title}{mark}")
    while True:
        answer = await prompt.ask(
            f"Choose 1 to {len(card.actions)}, write a message, or press Enter to leave it open: "
        )
        if not answer or not answer.strip():
            return None
        chosen = _find_action(card, answer.strip())
        if chosen is not None:
            return chosen
        if not answer.strip().isdecimal():
            # The text of a card may ask for words, such as "yes" or "only 1", and other things come to mind.
            return answer
        screen.say("That is none of them.")


def _find_action(card: ActionCard, answer: str) -> CardAction | None:
    if answer.isdecimal() and 1 <= int(answer) <= len(card.actions):
        return card.actions[int(answer) - 1]
    names = [action for action in card.actions if answer.lower() in (action.title.lower(), action.id.lower())]
    return names[0] if names else None


async def _ask_input(field: CardInput, screen: Screen, prompt: Prompt) -> bool | str | None:
    """Return the value of one input, or None if it is left out."""
    label = field.label or field.id
    if field.type == "Input.Toggle":
        answer = await prompt.ask(f"{label} (yes or no): ", "yes" if field.value is True else "")
        return None if answer is None or not answer.strip() else answer.strip().lower() in _YES
    if field.type == "Input.ChoiceSet" and field.choices:
        return await _ask_choice(field, field.choices, screen, prompt)
    hint = f" ({field.placeholder})" if field.placeholder else ""
    # One line is enough for the JSON of a request, and Enter sends it.
    given = " ".join(str(field.value or "").split())
    while True:
        optional = "" if field.is_required or given or "optional" in label else ", optional"
        answer = await prompt.ask(f"{label}{hint}{optional}: ", given)
        if (answer and answer.strip()) or not field.is_required or answer is None:
            return answer or None
        screen.say("This is needed.")


async def _ask_choice(field: CardInput, choices: Sequence[CardChoice], screen: Screen, prompt: Prompt) -> str | None:
    for number, choice in enumerate(choices, 1):
        screen.say(f"  {number}. {choice.title}")
    while True:
        answer = await prompt.ask(f"{field.label or field.id} (1 to {len(choices)}): ", str(field.value or ""))
        text = (answer or "").strip()
        if not text:
            return None
        if text.isdecimal() and 1 <= int(text) <= len(choices):
            return choices[int(text) - 1].value
        for choice in choices:
            if text.lower() in (choice.title.lower(), choice.value.lower()):
                return choice.value
        screen.say("That is none of them.")
