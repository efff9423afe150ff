"""Pick the parts of a long text that fit a question best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import sqrt

from rem.search.synonyms import find_synonyms
from rem.text import FUNCTION_WORDS, find_sentence_spans, split_words

MAX_SCANNED_CHARS = 50_000
GAP = " … "
"""Stands for what is left out. The same mark stands at the beginning and at the end."""
STEM_CHARS = 5
"""Words with the same first letters count as the same word: ferry, ferries."""
SYNONYM_WEIGHT = 0.7
MAX_PIECE_CHARS = 200
"""A longer sentence is picked in pieces."""


def pick_excerpt(text: str, question: str, max_chars: int) -> str:
    """Return the text; if it is too long, the sentences that fit the question best, with marks of omission.

    They stay in their order. Without a sentence that fits, the beginning is returned.
    """
    if len(text) <= max_chars:
        return text
    scanned = text[:MAX_SCANNED_CHARS]
    pieces = list(_split_long(scanned, find_sentence_spans(scanned)))
    scores = _score_pieces([scanned[start:end] for start, end in pieces], question)
    picked = _pick_pieces(pieces, scores, max_chars)
    if not picked:
        beginning = text[: max_chars - len(GAP)]
        return f"{beginning.rsplit(maxsplit=1)[0] if ' ' in beginning.strip() else beginning} …"
    return _join(text, [pieces[place] for place in sorted(picked)])


def _score_pieces(pieces: Sequence[str], question: str) -> list[float]:
    """Return how well each piece fits. A word that many pieces have says little about one of them."""
    wanted = _list_stems(question)
    others = _list_stems(find_synonyms(question)) - wanted
    found = [_list_stems(piece) & (wanted | others) for piece in pieces]
    frequencies = Counter(stem for stems in found for stem in stems)
    return [
        sum((1 if stem in wanted else SYNONYM_WEIGHT) / sqrt(frequencies[stem]) for stem in stems) for stems in found
    ]


def _pick_pieces(pieces: Sequence[tuple[int, int]], scores: Sequence[float], max_chars: int) -> set[int]:
    """Return the places of the best pieces that have room together, and of their neighbours as far as there is room."""
    by_score = [place for place in sorted(range(len(pieces)), key=lambda place: -scores[place]) if scores[place] > 0]
    picked: set[int] = set()
    for place in by_score:
        if _count_chars(pieces, picked | {place}) <= max_chars:
            picked.add(place)
    for distance in (1, -1, 2):
        for place in by_score:
            near = place + distance
            if place not in picked or near in picked or not 0 <= near < len(pieces):
                continue
            if _count_chars(pieces, picked | {near}) <= max_chars:
                picked.add(near)
    return picked


def _count_chars(pieces: Sequence[tuple[int, int]], picked: set[int]) -> int:
    """Return the length of an excerpt of these pieces, at most."""
    return sum(pieces[place][1] - pieces[place][0] + len(GAP) for place in picked) + len(GAP)


def _join(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return the parts of a text with a mark where something is left out between them."""
    parts: list[str] = []
    previous = 0
    for start, end in spans:
        between = text[previous:start]
        parts += [GAP if between.strip() else (" " if parts and between else ""), text[start:end]]
        previous = end
    if text[previous:].strip(" \n\t\"'”’)]"):
        parts.append(GAP)
    return "".join(parts).strip()


def _split_long(text: str, spans: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans, the long ones in pieces that end after a word."""
    for start, end in spans:
        while end - start > MAX_PIECE_CHARS:
            cut = text.rfind(" ", start + 1, start + MAX_PIECE_CHARS)
            cut = start + MAX_PIECE_CHARS if cut < 0 else cut
            yield start, cut
            start = cut
        yield start, end


def _list_stems(text: str) -> frozenset[str]:
    return frozenset(word[:STEM_CHARS] for word in split_words(text) if word not in FUNCTION_WORDS)
