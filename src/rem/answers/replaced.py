"""Find out which rows of an answer a newer one replaces. A revocation restores what was replaced before it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from rem.answers.reading import AnswerReader
from rem.models.message import MessageKind
from rem.models.resource import REMEMBERED_ORIGIN
from rem.models.results import Hit, Ref

MAX_OLDER_ROWS, MAX_NEWER_ROWS = 5, 8
MAX_PAIRS = 10
"""The model reads pairs of the best rows only: what comes first matters."""
MAX_TEXT_CHARS = 400
MIN_REPLACED = 0.2
"""Of 141 corrected questions of nine weeks 104 are right with it (.5: 101, never: 68), of 303 others 240 (240, 238)."""
_REQUESTS = (MessageKind.QUESTION, MessageKind.COMMAND)
Pair = tuple[int, int]
"""The places of an older and a newer row."""


async def mark_replaced(
    reader: AnswerReader, question: str, hits: Sequence[Hit], answering: Collection[str]
) -> list[Hit]:
    """Return the hits with each newer one before what it replaces. A replaced hit says what replaced it.

    Only the hits with the ids in `answering` are compared: a text about something else replaces nothing.
    """
    pairs = list(_list_pairs(hits, answering))[:MAX_PAIRS]
    texts = [(_get_head(hits[older]), _get_head(hits[newer])) for older, newer in pairs]
    shares = await reader.find_replaced(question, texts) if pairs else ()
    found = {pair for pair, share in zip(pairs, shares, strict=True) if share >= MIN_REPLACED}
    return _reorder(hits, find_current_replacements(hits, found | set(_list_confirmed(hits))))


async def is_row_replaced(reader: AnswerReader, question: str, row: str, source: Hit, hits: Sequence[Hit]) -> bool:
    """Return whether one of the best hits replaces a row of a table, which is as old as its source."""
    newer = [hit for hit in hits[:MAX_NEWER_ROWS] if _can_be_replaced(hit) and _get_time(hit) > _get_time(source)]
    if not newer or not _can_be_replaced(source):
        return False
    shares = await reader.find_replaced(question, [(row[:MAX_TEXT_CHARS], _get_head(hit)) for hit in newer])
    return max(shares) >= MIN_REPLACED


def find_current_replacements(hits: Sequence[Hit], pairs: Collection[Pair]) -> Mapping[int, int]:
    """Return for each replaced row the newest row that replaces it and is not replaced itself.

    What replaced a row counts no more once it is replaced or revoked, so that the row is valid again.
    """
    by_age = sorted({place for pair in pairs for place in pair}, key=lambda place: _get_time(hits[place]), reverse=True)
    newest: dict[int, int] = {}
    for place in by_age:
        newer = [other for older, other in pairs if older == place and other not in newest]
        if newer:
            newest[place] = max(newer, key=lambda other: _get_time(hits[other]))
    return newest


def _list_pairs(hits: Sequence[Hit], answering: Collection[str]) -> Iterator[Pair]:
    """Yield the pairs that the model reads, those of the best rows first."""
    places = [place for place, hit in enumerate(hits) if hit.id in answering and _can_be_replaced(hit)]
    older_rows, newer_rows = places[:MAX_OLDER_ROWS], places[:MAX_NEWER_ROWS]
    pairs = [(o, n) for o in older_rows for n in newer_rows if _get_time(hits[o]) < _get_time(hits[n])]
    yield from sorted(pairs, key=lambda pair: pair[0] + pair[1])


def _list_confirmed(hits: Sequence[Hit]) -> Iterator[Pair]:
    """Yield the pairs that the user has confirmed: `metadata.supersedes` lists rows as table/id."""
    places = {hit.id: place for place, hit in enumerate(hits)}
    for newer, hit in enumerate(hits):
        metadata = hit.record.get("metadata")
        names = metadata.get("supersedes") if isinstance(metadata, dict) else None
        for name in names if isinstance(names, list) else ():
            older = places.get(str(name).rpartition("/")[2])
            # A text without a number does not replace the number of another one: the model decides then.
            if older is not None and older != newer and _has_digit(hits[newer]) >= _has_digit(hits[older]):
                yield older, newer


def _can_be_replaced(hit: Hit) -> bool:
    """Return whether a hit states something at a time. When a note was read says nothing about when it was written."""
    if hit.table == "messages":
        return not hit.is_from_assistant and hit.record.get("kind") not in _REQUESTS
    is_dated = bool(hit.record.get("timestamp")) or hit.record.get("origin") == REMEMBERED_ORIGIN
    return hit.table == "resources" and is_dated and hit.passage is not None


def _has_digit(hit: Hit) -> bool:
    return any(character.isdigit() for character in _get_head(hit))


def _get_head(hit: Hit) -> str:
    return hit.shown_text[:MAX_TEXT_CHARS]


def _get_time(hit: Hit) -> tuple[float, int]:
    """Return the time, and the place in the session for messages that were stored together."""
    at, place = hit.happened_at, hit.record.get("message_index")
    return at.timestamp() if at else 0.0, place if isinstance(place, int) else -1


def _reorder(hits: Sequence[Hit], newest: Mapping[int, int]) -> list[Hit]:
    ordered: list[int] = []
    for place in range(len(hits)):
        newer = newest.get(place)
        ordered += [added for added in ((place,) if newer is None else (newer, place)) if added not in ordered]
    return [_mark(hits[place], hits[newest[place]]) if place in newest else hits[place] for place in ordered]


def _mark(hit: Hit, newer: Hit) -> Hit:
    return replace(hit, replaced_by=Ref(newer.table, newer.key, newer.happened_at))
