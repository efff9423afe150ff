"""Relations: which of them hold one at a time, and since when."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

from rem.dreaming.entities.evidence import Stated
from rem.dreaming.entities.name_words import fold

EXCLUSIVE = ("works_at", "reports_to", "lives_in", "married_to")
"""A newer one ends the older."""
_SAME = {"works_for": "works_at", "employed_by": "works_at", "employed_at": "works_at", "located_at": "located_in"}
_READABLE = re.compile(r"[a-z][a-z]{1,30}(?:_[a-z]{1,30}){0,4}\Z")


def rel_type_of(label: str) -> str | None:
    """A relation's name as the graph writes it; None if it cannot be one."""
    name = re.sub(r"[\s-]+", "_", label[:200].strip().lower())
    name = _SAME.get(name, name)
    return name if _READABLE.match(name) else None


Ends: TypeAlias = tuple[Hashable, Hashable]
"""What a relation leads from, and where to."""


def _names(one: Stated) -> Ends:
    return one.src, one.dst


def beginnings(stated: Iterable[Stated], ends: Callable[[Stated], Ends] = _names) -> list[Stated]:
    """When each thing that was stated began to hold, in the order of time: when it was said first; and if something
    else held between, also when it was said first since."""
    begun: list[Stated] = []
    known: set[tuple[Hashable, str, Hashable]] = set()
    current: dict[tuple[Hashable, str], Hashable] = {}
    for one in sorted(stated, key=lambda one: one.place):
        src, dst = ends(one)
        is_back = one.rel_type in EXCLUSIVE and current.get((src, one.rel_type)) != dst
        if is_back or (src, one.rel_type, dst) not in known:
            begun.append(one)
        known.add((src, one.rel_type, dst))
        current[src, one.rel_type] = dst
    return begun


def by_first_word(one: Stated) -> Ends:
    """Before it is known who is who: Sarah and Sarah Chen may be one."""
    return fold(one.src[0]) if one.src else "", (one.src, one.dst)
