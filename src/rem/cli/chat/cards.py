"""Answer a card of an agent in the terminal: fill in its inputs, and choose one of its buttons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rem.approvals.cards import parse_card_id
from rem.events import ActionCard, CardAction, CardInput
from rem.memory.card_answers import CardAnswer

if TYPE_CHECKING:
    from rem.cli.chat.prompt import Prompt
    from rem.cli.chat.screen import Screen

_YES = ("y", "yes", "true", "1", "on")


async def answer_card(card: ActionCard, screen: Screen, prompt: Prompt) -> CardAnswer | None:
    """Show a card and return the user's answer; None if the user leaves it open."""
    if parse_card_id(card.id) is None:
        # What asks for consent stands in the text already.
        screen.say(card.prompt)
    while True:
        action = await _choose_action(card, screen, prompt)
        if action is None:
            return None
        if action.type == "Action.OpenUrl":
            screen.say(f"Open {action.url} in your browser.")
            continue
        if action.type == "Action.ShowCard" and action.card is not None:
            revealed = {"id": card.id, "prompt": action.card.prompt or action.title}
            return await answer_card(action.card.model_copy(update=revealed), screen, prompt)
        inputs: dict[str, bool | str] = {}
        for field in card.inputs if action.style != "secondary" else ():
            value = await _ask_input(field, screen, prompt)
            if value is not None:
                inputs[field.id] = value
        return CardAnswer(card_id=card.id, action_id=action.id, inputs=inputs)


async def _choose_action(card: ActionCard, screen: Screen, prompt: Prompt) -> CardAction | None:
    for number, action in enumerate(card.actions, 1):
        mark = "  (cannot be undone)" if action.style == "destructive" else ""
        screen.say(f"  {number}. {action.title}{mark}")
    while True:
        answer = await prompt.ask(f"Choose 1 to {len(card.actions)}, or press Enter to leave it open: ")
        if not answer or not answer.strip():
            return None
        chosen = _find_action(card, answer.strip())
        if chosen is not None:
            return chosen
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
        answer = await prompt.ask(f"{label} (yes or no): ")
        return None if answer is None or not answer.strip() else answer.strip().lower() in _YES
    if field.type == "Input.ChoiceSet" and field.choices:
        for number, choice in enumerate(field.choices, 1):
            screen.say(f"  {number}. {choice.title}")
        answer = await prompt.ask(f"{label} (1 to {len(field.choices)}): ")
        is_number = answer is not None and answer.strip().isdecimal() and 1 <= int(answer) <= len(field.choices)
        return field.choices[int(answer or 0) - 1].value if is_number else (answer or None)
    hint = f" ({field.placeholder})" if field.placeholder else ""
    return await prompt.ask(f"{label}{hint}{'' if field.is_required else ', optional'}: ") or None
