"""Recognise a message that decides on a change which was shown: yes, no, the numbers of rows, a code."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_CONFIRMATION_CHARS = 200
MAX_MESSAGE_CHARS = 2_000
"""Not even quotes and spaces make a confirmation longer."""
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
    text = text.strip()
    if len(text) > MAX_MESSAGE_CHARS:
        return None
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
