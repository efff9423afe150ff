"""Write the text of an answer: the sentence with its source first, then little else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rem.answers.evidence import ReadHit, ReadResult
from rem.answers.sources import describe_source, quote_sentence, shorten, to_line
from rem.models.results import Answer, Hit, Result, Span
from rem.search.reader import MessageType
from rem.text import fold_text

SURE, POSSIBLE = 0.6, 0.45
"""From the first one on, one sentence is the answer; from the other on, some more lines stand below. What is less sure
is only near. The curve is in docs/models.md."""
MAX_MORE_LINES = 3
MAX_NEAREST_ROWS = 2
MIN_NEAREST = 0.15
MIN_SHOWN_RELEVANCE = -3.0
"""Logit: less than 1 in 20. Below it, a row is not shown beside the best one, however little else there is."""
MAX_LISTED_HITS = 5
MAX_NAMED_CHARS = 320
NOTHING = "I found nothing about that in memory; tell me more, or ask with other words, and I look further."
NEAREST = "I did not find it; the closest is:"


def write_answer(evidence: ReadResult) -> Answer:
    """Return the answer that the evidence allows: one sentence, the nearest rows without a claim, or nothing."""
    confidence = max(evidence.confidence, evidence.table.confidence if evidence.table else 0.0)
    if not evidence.read or confidence < MIN_NEAREST:
        return Answer("nothing", NOTHING, confidence=confidence, notes=evidence.notes)
    told = [f"{evidence.table.text} ({describe_source(evidence.table.hit)})"] if evidence.table else []
    if confidence < POSSIBLE:
        first, *others = evidence.read[:MAX_NEAREST_ROWS]
        lines = [*told, *(item.line for item in (first, *filter(_is_shown, others)))]
        text = "\n".join([NEAREST, *(f"- {line}" for line in lines[:MAX_NEAREST_ROWS])])
        return Answer("nearest", text, None, confidence, evidence.hits, evidence.notes)
    if told:
        return Answer("answered", told[0], evidence.quote, confidence, evidence.hits, evidence.notes)
    first, *others = evidence.read
    lines = [first.line, *(item.line for item in evidence.support), *_list_more(evidence, others)]
    return Answer("answered", "\n".join(lines), evidence.quote, confidence, evidence.hits, evidence.notes)


def write_named(hits: Sequence[Hit]) -> Answer | None:
    """Return what is stored under a key; None if no row of it has a text."""
    with_text = [hit for hit in hits if hit.text.strip()]
    if not with_text:
        return None
    text = with_text[0].text
    beginning = quote_sentence(with_text[0], shorten(to_line(text), MAX_NAMED_CHARS))
    return Answer("answered", beginning, Span(0, 0, len(text), text), 1.0, [*with_text, *_without(hits, with_text)])


def write_result(result: Result) -> Answer:
    """Return the answer to a query: how much it found, and the first rows."""
    notes = result.notes
    if not result.count:
        return Answer("nothing", " ".join([NOTHING, *(note.text for note in notes)]), notes=notes)
    shown = [quote_sentence(hit, hit.shown_text or describe_source(hit)) for hit in result.hits[:MAX_LISTED_HITS]]
    shown += [", ".join(f"{name}: {value}" for name, value in row.items()) for row in result.rows[:MAX_LISTED_HITS]]
    count = f"{result.count} {'row' if result.count == 1 else 'rows'}"
    return Answer("answered", "\n".join([f"{count}:", *(f"- {line}" for line in shown)]), None, 1.0, result.hits, notes)


def _list_more(evidence: ReadResult, others: Sequence[ReadHit]) -> Iterator[str]:
    """Yield what was replaced, and some more lines if one does not suffice."""
    shown = {fold_text(evidence.read[0].sentence)}
    is_sure = evidence.confidence >= SURE and evidence.kind in (MessageType.FACT, MessageType.YES_NO)
    lines = 0
    for item in others:
        replaced = item.hit.replaced_by
        if not _is_shown(item):
            continue
        if replaced is not None and item is others[0]:
            # The old value itself stands in the hits: here it would be read as another answer.
            yield f"This replaces an older text ({describe_source(item.hit)})."
        elif is_sure or replaced is not None or lines >= MAX_MORE_LINES or fold_text(item.sentence) in shown:
            continue
        else:
            yield f"- {item.line}"
        shown.add(fold_text(item.sentence))
        lines += 1


def _is_shown(item: ReadHit) -> bool:
    """Return whether a row may stand below the best one."""
    return item.reading.relevance >= MIN_SHOWN_RELEVANCE


def _without(hits: Sequence[Hit], others: Sequence[Hit]) -> list[Hit]:
    known = {hit.id for hit in others}
    return [hit for hit in hits if hit.id not in known]
