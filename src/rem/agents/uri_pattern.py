"""Which addresses a pattern such as `rem://sessions/.*` allows.

Patterns are written by users and matched with what a model asks for, so they are a part of regular expressions that
can be matched in linear time: letters, `.`, `[...]`, `\\` before a sign, and `*`, `+` or `?` behind any of them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_STEP = re.compile(
    r"(?:\\(?P<escaped>\W)|(?P<any>\.)|\[(?P<set>\^?[^\[\]\\^]+)\]|(?P<plain>[^\\.\[\](){}|*+?^$]))(?P<times>[*+?]?)"
)


class _Step(NamedTuple):
    """One sign of an address, and how often it may come."""

    sign: re.Pattern[str]
    optional: bool
    repeats: bool


def check_uri_pattern(pattern: str) -> None:
    """A ValueError that says what is wrong with a pattern, if anything is."""
    _steps(pattern)


def matches_uri_pattern(pattern: str, uri: str) -> bool:
    """Whether the whole address is as the pattern says."""
    steps = _steps(pattern)
    states = _reachable(steps, {0})
    for sign in uri:
        moved = {state for state in states if state < len(steps) and steps[state].sign.match(sign)}
        states = _reachable(steps, {state + 1 for state in moved} | {state for state in moved if steps[state].repeats})
        if not states:
            return False
    return len(steps) in states


@lru_cache(maxsize=256)
def _steps(pattern: str) -> tuple[_Step, ...]:
    steps, position = [], 0
    # Anchors say what is so anyway: the whole address is compared.
    pattern = pattern.removeprefix("^").removesuffix("$")
    while position < len(pattern):
        step = _STEP.match(pattern, position)
        if step is None:
            raise ValueError(
                f"{pattern[position]!r} at position {position + 1} is not supported here: write a pattern with .* such "
                "as rem://sessions/.*, and one pattern for each alternative"
            )
        position = step.end()
        times = step["times"]
        steps.append(_Step(_sign(step), optional=times in ("*", "?"), repeats=times in ("*", "+")))
    return tuple(steps)


def _sign(step: re.Match[str]) -> re.Pattern[str]:
    if step["any"]:
        return re.compile(".", re.DOTALL)
    if step["set"]:
        try:
            return re.compile(f"[{step['set']}]")
        except re.error as error:
            raise ValueError(f"[{step['set']}]: {error.msg}") from error
    return re.compile(re.escape(step["escaped"] or step["plain"]))


def _reachable(steps: tuple[_Step, ...], states: set[int]) -> set[int]:
    """The states, and those behind signs that may be left out."""
    pending, found = list(states), set(states)
    while pending:
        state = pending.pop()
        if state < len(steps) and steps[state].optional and state + 1 not in found:
            found.add(state + 1)
            pending.append(state + 1)
    return found
