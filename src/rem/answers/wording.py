"""Write the text of an answer: the sentence with its source first, then little else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rem.answers.dates import format_day
from rem.answers.evidence import ReadHit, ReadResult
from rem.answers.sources import describe_source, quote_sentence, shorten, to_line
from rem.models.results import Answer, Hit, Result, Span
from rem.search.reader import MessageType
from rem.text import fold_text

SURE, POSSIBLE = 0.45, 0.25
"""From the first one on, one sentence is the answer; from the other on, some more lines stand below. Of 52 questions
about somebody else's week 4 % reach the second one, of 68 about the own week 72 %."""
TABLE_CONFIDENCE = 0.8
"""What a table says is certain; that it is the right table is not."""
MAX_MORE_LINES = 3
MAX_NEAREST_ROWS = 2
MIN_NEAREST = 0.1
MIN_SHOWN_RELEVANCE = -3.0
"""Logit: less than 1 in 20. Below it, a row is not shown beside the best one, however little else there is."""
MAX_LISTED_HITS = 5
MAX_NAMED_CHARS = 320
NOTHING = "I found nothing about that in memory; tell me more, or ask with other words, and I look further."
NEAREST = "I did not find it; the closest is:"


def write_answer(evidence: ReadResult) -> Answer:
    """Return the answer that the evidence allows: one sentence, the nearest rows without a claim, or nothing."""
    if evidence.table is not None:
        table = evidence.table
        line = f"{table.text} ({describe_source(table.hit)})"
        confidence = max(evidence.confidence, TABLE_CONFIDENCE) if table.is_certain else evidence.confidence
        return Answer("answered", line, evidence.quote, confidence, evidence.hits, evidence.notes)
    if not evidence.read or evidence.confidence < MIN_NEAREST:
        return Answer("nothing", NOTHING, confidence=evidence.confidence, notes=evidence.notes)
    if evidence.confidence < POSSIBLE:
        first, *others = evidence.read[:MAX_NEAREST_ROWS]
        nearest = [first, *filter(_is_shown, others)]
        text = "\n".join([NEAREST, *(f"- {item.line}" for item in nearest)])
        return Answer("nearest", text, None, evidence.confidence, evidence.hits, evidence.notes)
    first, *others = evidence.read
    lines = [first.line, *(item.line for item in evidence.support), *_list_more(evidence, others)]
    return Answer("answered", "\n".join(lines), evidence.quote, evidence.confidence, evidence.hits, evidence.notes)


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
        if replaced is not None and lines < MAX_MORE_LINES and item is others[0]:
            on = f" on {format_day(replaced.happened_at.date())}" if replaced.happened_at else ""
            yield f"Before, replaced{on}: {item.line}"
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
