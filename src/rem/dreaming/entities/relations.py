"""Relations: which of them hold one at a time, and since when."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rem.dreaming.entities.evidence import Stated

EXCLUSIVE = ("works_at", "reports_to", "lives_in", "married_to")
"""A newer one ends the older."""
_SAME = {"works_for": "works_at", "employed_by": "works_at", "employed_at": "works_at", "located_at": "located_in"}
_READABLE = re.compile(r"[a-z][a-z]{1,30}(?:_[a-z]{1,30}){0,4}\Z")


def rel_type_of(label: str) -> str | None:
    """A relation's name as the graph writes it; None if it cannot be one."""
    name = re.sub(r"[\s-]+", "_", label[:200].strip().lower())
    name = _SAME.get(name, name)
    return name if _READABLE.match(name) else None


def latest(stated: Iterable[Stated]) -> list[Stated]:
    """What was stated, each once: when it was said first; if something else held between, when first since."""
    last: dict[tuple[tuple[str, ...], str, tuple[str, ...]], Stated] = {}
    current: dict[tuple[tuple[str, ...], str], tuple[str, ...]] = {}
    for one in sorted(stated, key=lambda one: one.place):
        place, holder = (one.src, one.rel_type, one.dst), (one.src, one.rel_type)
        if place not in last or (one.rel_type in EXCLUSIVE and current.get(holder) != one.dst):
            last[place] = one
        current[holder] = one.dst
    return list(last.values())
