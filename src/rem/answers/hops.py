"""Answer a question in two hops: what a description means is found first, then what is asked about it.

"What is the number of the woman who tunes the piano?" is answered by "Ilse tunes our piano" and "Ilse: 555 0192".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

from rem.answers.evidence import ReadHit, ReadResult
from rem.knowledge.tagger import get_tagger
from rem.text import fold_text

MAX_FIRST_ROWS = 3
"""Rows that may say what a description means."""
MAX_NAMES = 2
SECOND_HOP_SHARE = 0.9
"""Two rows are less certain than one."""
Read = Callable[[str, str], Awaitable[ReadResult]]
"""Searches for a question and reads the rows. Copies of the second text are left out."""


async def find_second_hop(evidence: ReadResult, read: Read) -> ReadResult | None:
    """Return the surest evidence about somebody or something that the first rows name and the question does not."""
    found = [await _follow(evidence, first, name, read) for first, name in await _list_names(evidence)]
    known = [second for second in found if second is not None]
    return max(known, key=lambda second: second.confidence, default=None)


async def _list_names(evidence: ReadResult) -> list[tuple[ReadHit, str]]:
    """Return the names in the best rows that the question does not have, with their rows."""
    rows = evidence.read[:MAX_FIRST_ROWS]
    names = await get_tagger().find_names([item.sentence for item in rows])
    asked = fold_text(evidence.question)
    found: dict[str, ReadHit] = {}
    for item, tagged in zip(rows, names, strict=True):
        for name in tagged:
            if fold_text(name.text) not in asked:
                found.setdefault(name.text, item)
    return [(item, name) for name, item in list(found.items())[:MAX_NAMES]]


async def _follow(evidence: ReadResult, first: ReadHit, name: str, read: Read) -> ReadResult | None:
    """Return the evidence of other rows about a name; None if no row has it."""
    question = f"{first.sentence} {evidence.question}"
    second = await read(question, question)
    about = [item for item in _without(second, first) if fold_text(name) in _get_words(item)]
    if not about:
        return None
    return replace(
        second,
        question=evidence.question,
        read=about,
        confidence=SECOND_HOP_SHARE * second.confidence if about[0] is second.read[0] else 0.0,
        support=(first,),
    )


def _without(evidence: ReadResult, first: ReadHit) -> Iterator[ReadHit]:
    return (item for item in evidence.read if item.hit.id != first.hit.id)


def _get_words(item: ReadHit) -> str:
    title = item.hit.record.get("name")
    return fold_text(f"{title if isinstance(title, str) else ''} {item.hit.shown_text}")
