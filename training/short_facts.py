"""Make short facts about one thing, and later facts that do or do not replace them (training/short_facts.yaml).

The weeks that people wrote hardly have facts about two things of one kind ("Team Red releases on Monday", "Team Blue
releases on Friday"), and without them a model takes the second for a change of the first.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CASES_PER_FRAME = 60
SHARE_ALIKE = 0.5
_SLOT = re.compile(r"\{(\w+)\}")
_CONTENT = yaml.safe_load((Path(__file__).parent / "short_facts.yaml").read_text(encoding="utf-8"))

Triple = tuple[str, str, str, bool]
"""A question, an older and a newer text, and whether the newer one replaces the older one."""


def make_short_facts(seed: int = 1) -> Iterator[Triple]:
    """Return the cases of all frames."""
    generator = random.Random(seed)
    for frame in _CONTENT["frames"]:
        for _ in range(CASES_PER_FRAME):
            yield from _make_cases(frame, generator)


def _make_cases(frame: dict[str, Any], generator: random.Random) -> Iterator[Triple]:
    """Return cases of one thing and another of the same kind, each with two values."""
    thing, other = _choose_two(frame["things"], generator)
    values = frame["values"] if isinstance(frame["values"], list) else _CONTENT["slots"][frame["values"]]
    old, new = map(str, generator.sample(values, 2))
    style = generator.choice(_STYLES)

    def write(kind: str, about: str, value: str) -> str:
        text = generator.choice(frame[kind]).replace("{s}", about).replace("{v}", value).replace("{o}", old)
        return style(_fill(text, generator), "?" if kind == "asks" else ".")

    ask, older = write("asks", thing, old), write("states", thing, old)
    if not frame.get("has_several"):
        yield ask, older, write("states", thing, new), True
    yield ask, older, write("changes", thing, new), True
    yield ask, older, write("states", other, new), False
    yield ask, older, write("changes", other, new), False
    yield ask, older, write("others", thing, new), False


def _choose_two(things: list[str], generator: random.Random) -> tuple[str, str]:
    """Return two different things, half of them alike: team alpha and team beta."""
    pattern = generator.choice(things)
    is_alike = _SLOT.search(pattern) is not None and generator.random() < SHARE_ALIKE
    first = second = _fill(pattern, generator)
    while second == first:
        second = _fill(pattern if is_alike else generator.choice(things), generator)
    return first, second


def _fill(text: str, generator: random.Random) -> str:
    return _SLOT.sub(lambda slot: str(generator.choice(_CONTENT["slots"][slot[1]])), text)


def _write_sentence(text: str, end: str) -> str:
    """Return a text with a capital letter and a sign at its end."""
    return f"{text[0].upper()}{text[1:].rstrip('?')}{end}"


def _write_lower(text: str, _end: str) -> str:
    return text.lower().rstrip("?")


def _keep(text: str, _end: str) -> str:
    return text


_STYLES = (_write_sentence, _write_sentence, _write_lower, _keep)
