"""AnswerEngine: answer a question from the memory. The library, HTTP, CLI, MCP, chat and web all use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from loguru import logger

from rem.answers.evidence import ReadHit, ReadResult, TableAnswer
from rem.answers.hops import Read, find_second_hop
from rem.answers.queries import (
    MAX_QUESTION_CHARS,
    UNNAMED_TABLES,
    check_question,
    find_exact_key,
    is_explicit_key,
    parse_as_query,
)
from rem.answers.records import find_tables, read_tables
from rem.answers.replaced import MAX_NEWER_ROWS, is_row_replaced, mark_replaced
from rem.answers.row_texts import load_row_texts
from rem.answers.sources import unwrap_lines
from rem.answers.tables import TableReading, answer_from_table
from rem.answers.wording import POSSIBLE, write_answer, write_named, write_result
from rem.errors import RerankerError
from rem.models.message import MessageKind
from rem.models.resource import REMEMBERED_ORIGIN
from rem.models.results import Note, Result
from rem.query.read_time import ReadTimeLimit
from rem.query.time_phrases import Period, find_time_phrase, format_time
from rem.query.tree import Fuzzy, Search
from rem.search.confidence import RELEVANCE_WEIGHT, estimate_confidence
from rem.search.identifiers import find_identifiers
from rem.search.reader import QUESTION_TYPES, MessageReading, MessageType, RowReading, RowText
from rem.search.spelling import correct_spelling
from rem.text import find_sentence_spans, fold_text

if TYPE_CHECKING:
    from rem.answers.reading import AnswerReader
    from rem.db.store import Store
    from rem.models.results import Answer, Hit
    from rem.query.executor import QueryExecutor

WEAK = "Nothing clearly answers this: these are the nearest texts."
MAYBE_TOLD = Note("maybe_told", "If you told me that, write `/remember` before it.")
MIN_TOLD = 0.1
"""A message that is less likely a statement, and has no answer, was hardly told."""
MIN_SIMILARITY = 0.2
"""A question shares few words with its answer."""
MIN_NAME_SIMILARITY = 0.65
MAX_NAMED_ROWS = 5
MAX_FOUND_ROWS = 30
MAX_READ_ROWS = 16
MAX_COMMAND_CHARS = 20
"""The words before what a message asks to note, such as "Please remember that"."""
MAX_READ_CHARS = 7_200
"""Eight long passages, or all of the short ones: the time to read grows with the length."""
PERIOD_BONUS = 0.2
"""Added to the score of a row of the time that the question names."""
MAX_PERIOD_ROWS = 10
COMPUTED_TYPES = (MessageType.COUNT, MessageType.SUM, MessageType.MAXIMUM, MessageType.MINIMUM)
UNCLAIMED = 0.2
"""The highest confidence of a row that is not the computed answer: it is shown as the nearest."""
MIN_REPLACING = 0.35
"""Only a text that may answer the question replaces another, and only one that may answer it is replaced."""
MIN_CONTINUED = 0.3
"""A message that continues the last one less likely is searched by itself only."""


class AnswerEngine:
    """Answers questions over the rows that one scope may see."""

    def __init__(
        self, executor: QueryExecutor, store: Store, reader: AnswerReader | None, weight: float = RELEVANCE_WEIGHT
    ) -> None:
        """Answer from the order of SEARCH alone if there is no `reader`. `weight` is the factor of its relevance."""
        self._executor = executor
        self._store = store
        self._reader = reader
        self._weight = weight

    async def ask(self, text: str, *, previous: str = "") -> Answer:
        """Answer a text: a query is run, an exact key is looked up, anything else is searched and read.

        `previous` is the question before it in the same session. The text is searched with and without it, and the
        surer answer wins.
        """
        text = check_question(text)
        query = parse_as_query(self._store, text)
        if query is not None:
            return write_result(await self._executor.run(query, text))
        named = write_named(await self._look_up(text))
        if named is not None:
            return named
        message = await self.classify(text, previous)
        return write_answer(await self._find_evidence(text, previous, message))

    async def find(self, text: str) -> Result:
        """Return the rows of a query or a key, or those that were read for a question, with the answer as a note."""
        text = check_question(text)
        query = parse_as_query(self._store, text)
        if query is not None:
            return await self._executor.run(query, text)
        if named := await self._look_up(text):
            said = write_named(named)
            return Result("LOOKUP", named, notes=() if said is None else (Note("answer", said.text),))
        evidence = await self._find_evidence(text, "", await self.classify(text))
        answer = write_answer(evidence)
        weak = (Note("weak", WEAK),) if answer.status != "answered" else ()
        hits = [*evidence.hits, *evidence.unread]
        return Result("SEARCH", hits, notes=(Note("answer", answer.text), *weak, *evidence.notes), steps=evidence.steps)

    async def reply(self, text: str, *, previous: str = "") -> Answer | MessageType:
        """Return the answer to a message of a chat; what kind of message it is if it asks nothing."""
        # A pasted text may be longer than any question.
        text = check_question(text[:MAX_QUESTION_CHARS])
        message = await self.classify(text, previous)
        # A question mark asks, whatever stands before it.
        is_asked = message.kind not in (MessageKind.STATEMENT, MessageKind.SMALL_TALK) or text.endswith("?")
        if is_asked or parse_as_query(self._store, text):
            answer = await self.ask(text, previous=previous)
            is_told = answer.status != "answered" and message.types[MessageType.STATEMENT] >= MIN_TOLD
            return replace(answer, notes=(*answer.notes, MAYBE_TOLD)) if is_told else answer
        named = write_named(await self._look_up(text))
        return message.type if named is None else named

    async def classify(self, text: str, previous: str = "") -> MessageReading:
        """Return what kind of message a text is. Without a reader every text counts as a question."""
        try:
            if self._reader is not None:
                return await self._reader.classify(text, previous or None)
        except RerankerError as error:
            logger.warning("The reader failed, so every message counts as a question: {}", error)
        return MessageReading({kind: float(kind is MessageType.FACT) for kind in MessageType}, 0.0)

    async def _look_up(self, text: str) -> list[Hit]:
        """Return what is stored under a text that is an exact key."""
        async with ReadTimeLimit(self._executor.max_seconds):
            key = await find_exact_key(self._store, text)
        if key is None:
            return []
        hits = (await self._executor.run(key)).hits
        return [hit for hit in hits if hit.table not in UNNAMED_TABLES or is_explicit_key(text)]

    async def _find_evidence(self, text: str, previous: str, message: MessageReading) -> ReadResult:
        """Return the surest evidence: of the text alone, after the question before it, or by a second hop."""
        read = partial(self._read, said=text)
        text = await correct_spelling(self._store, text)
        evidence = await read(text, text)
        if previous and message.continues >= MIN_CONTINUED:
            evidence = max(evidence, await self._follow_up(previous, text, read), key=lambda item: item.confidence)
        evidence = await self._read_changes(evidence)
        is_changed = any(item.hit.replaced_by for item in evidence.read[:2])
        if evidence.confidence < POSSIBLE and not is_changed:
            second = await find_second_hop(evidence, read)
            if second is not None and second.confidence > evidence.confidence:
                evidence = await self._read_changes(second)
        kind = max(QUESTION_TYPES, key=lambda kind: message.types.get(kind, 0.0))
        return await self._read_tables(text, replace(evidence, kind=kind))

    async def _read(self, question: str, text: str, said: str) -> ReadResult:
        """Search for a question and read the best rows for `text`. Copies of `said`, the message, are no evidence."""
        period = find_time_phrase(text, self._executor.now)
        found = await self._search(question, period)
        hits = [hit for hit in found.hits if found.asks_assistant or not hit.is_from_assistant]
        read, notes = await self._read_hits(text, _limit_length(_keep_evidence(hits, said)))
        read.sort(key=lambda item: -self._rank(item, period))
        return ReadResult(
            question,
            read,
            _estimate(text, read),
            unread=[hit for hit in found.hits if not hit.shown_text.strip() or hit not in hits],
            notes=(*found.notes, *notes),
            steps=found.steps,
        )

    async def _follow_up(self, previous: str, text: str, read: Read) -> ReadResult:
        """Return the evidence for a text after the question before it. The words of both find and read the rows."""
        question = f"{previous} {text}"
        return await read(question, question)

    async def _search(self, question: str, period: Period | None) -> Result:
        """Return the hits for a question, after those of the time that it names."""
        query = Search(question, limit=MAX_FOUND_ROWS, min_similarity=MIN_SIMILARITY)
        result = await self._executor.run(query)
        if not result.hits:
            # A misspelt name shares no word with anything.
            named = await self._executor.run(Fuzzy(question, MIN_NAME_SIMILARITY, MAX_NAMED_ROWS))
            result = replace(result, hits=named.hits)
        if period is None:
            return result
        since, until = (format_time(bound) if bound else None for bound in (period.since, period.until))
        within = await self._executor.run(replace(query, since=since, until=until, limit=MAX_PERIOD_ROWS))
        known = {hit.id for hit in within.hits}
        return replace(result, hits=[*within.hits, *(hit for hit in result.hits if hit.id not in known)])

    async def _read_hits(self, question: str, hits: Sequence[Hit]) -> tuple[list[ReadHit], tuple[Note, ...]]:
        """Return the hits with their readings; with their first sentences if there is no reader, or if it fails."""
        if self._reader is None:
            return [_take_first_sentence(hit) for hit in hits], ()
        rows = await load_row_texts(self._store, hits)
        try:
            readings = await self._reader.read(question, rows)
        except RerankerError as error:
            logger.warning("The reader failed, so the order of SEARCH decides: {}", error)
            return [_take_first_sentence(hit) for hit in hits], (Note("not_reranked", f"Not read: {error}"),)
        found = zip(hits, rows, readings, strict=True)
        return [ReadHit(hit, row, reading) for hit, row, reading in found if reading is not None], ()

    def _rank(self, item: ReadHit, period: Period | None) -> float:
        """Return the score of SEARCH plus a little of what the model says, and more in the time that is asked about."""
        at = item.hit.happened_at
        is_inside = (
            period is not None
            and at is not None
            and (period.since is None or at >= period.since)
            and (period.until is None or at < period.until)
        )
        return (item.hit.score or 0.0) + self._weight * item.reading.relevance + (PERIOD_BONUS if is_inside else 0.0)

    async def _read_tables(self, text: str, evidence: ReadResult) -> ReadResult:
        """Return the evidence with what the surest table or list says, if it is surer than the best text."""
        if self._reader is None or not evidence.read:
            return evidence
        found = await find_tables(self._executor, self._store, text, [item.hit for item in evidence.read])
        try:
            readings = await read_tables(self._reader, text, evidence.kind, [table for table, _ in found])
            answers = list(_list_table_answers(readings, [hit for _, hit in found], evidence))
            evidence = _limit_computed(evidence, readings)
            answer = max(answers, key=lambda answer: answer.confidence, default=None)
            if answer is None or answer.confidence < evidence.confidence:
                return evidence
            hits = [item.hit for item in evidence.read if _may_answer(item)]
            is_replaced = await is_row_replaced(self._reader, text, answer.row, answer.hit, hits)
        except RerankerError as error:
            logger.warning("The reader failed, so no table is read: {}", error)
            return evidence
        return evidence if is_replaced else replace(evidence, table=answer)

    async def arrange(self, question: str, result: Result) -> Result:
        """Return a result with each newer hit before what it replaces. A replaced hit says what replaced it."""
        if self._reader is None:
            return result
        read, _ = await self._read_hits(question, result.hits[:MAX_NEWER_ROWS])
        return replace(result, hits=list(await self._mark_replaced(question, result.hits, read)))

    async def _read_changes(self, evidence: ReadResult) -> ReadResult:
        """Return the evidence with each newer row before what it replaces."""
        by_id = {item.hit.id: item for item in evidence.read}
        hits = await self._mark_replaced(evidence.question, [item.hit for item in evidence.read], evidence.read)
        return replace(evidence, read=[replace(by_id[hit.id], hit=hit) for hit in hits])

    async def _mark_replaced(self, question: str, hits: Sequence[Hit], read: Sequence[ReadHit]) -> Sequence[Hit]:
        if self._reader is None:
            return hits
        try:
            return await mark_replaced(
                self._reader, question, hits, {item.hit.id for item in read if _may_answer(item)}
            )
        except RerankerError as error:
            logger.warning("The reader failed, so nothing is marked as replaced: {}", error)
            return hits


def _may_answer(item: ReadHit) -> bool:
    return item.reading.answers >= MIN_REPLACING


def _limit_computed(evidence: ReadResult, readings: Sequence[TableReading]) -> ReadResult:
    """Return the evidence without a claim if one row of a table would stand for a count, a sum or an extreme."""
    is_row = any(reading.table.has_line(evidence.read[0].sentence) for reading in readings)
    if evidence.kind not in COMPUTED_TYPES or not is_row:
        return evidence
    return replace(evidence, confidence=min(evidence.confidence, UNCLAIMED))


def _list_table_answers(
    readings: Sequence[TableReading], hits: Sequence[Hit], evidence: ReadResult
) -> Iterator[TableAnswer]:
    best = evidence.read[0]
    for reading, hit in zip(readings, hits, strict=False):
        text = answer_from_table(evidence.kind, reading)
        if text is None:
            continue
        is_best_source = hit.id == best.hit.id
        confidence = reading.estimate(is_best_source=is_best_source)
        if is_best_source and reading.is_sure and reading.table.has_line(best.sentence):
            # The best text is a row of this table, which says the same in words.
            confidence = max(confidence, evidence.confidence)
        yield TableAnswer(text, hit, reading.table.rows[reading.best].write()[0], confidence)


def _keep_evidence(hits: Sequence[Hit], text: str) -> list[Hit]:
    """Return the hits that state something, each text once. A question states nothing.

    "Remember: my seat is 14A" says no more than the note that it left.
    """
    kept: dict[str, Hit] = {}
    asked = fold_text(text)
    notes = [fold_text(hit.shown_text) for hit in hits if hit.record.get("origin") == REMEMBERED_ORIGIN]
    for hit in hits:
        shown = fold_text(hit.shown_text)
        is_message = hit.table == "messages"
        is_question = is_message and hit.record.get("kind") == MessageKind.QUESTION
        is_repeated = is_message and any(
            note and shown.endswith(note) and len(shown) - len(note) <= MAX_COMMAND_CHARS for note in notes
        )
        if shown and shown != asked and not is_question and not is_repeated and hit.table != "sessions":
            kept.setdefault(shown, hit)
    return list(kept.values())


def _limit_length(hits: Sequence[Hit]) -> list[Hit]:
    """Return the first hits that the model reads."""
    lengths = accumulate(len(hit.shown_text) for hit in hits)
    count = sum(total <= MAX_READ_CHARS for total in lengths)
    return list(hits[: min(max(count, 1), MAX_READ_ROWS)])


def _take_first_sentence(hit: Hit) -> ReadHit:
    sentence = next(find_sentence_spans(unwrap_lines(hit.shown_text)), (0, len(hit.shown_text)))
    return ReadHit(hit, RowText(hit.shown_text), RowReading(0.0, 0.5, sentence, sentence, 0.0))


def _estimate(question: str, read: Sequence[ReadHit]) -> float:
    """Return how likely the best row answers, from 0 to 1. A row without an identifier of the question does not."""
    asked = {identifier.joined for identifier in find_identifiers(question)}
    found = {identifier.joined for item in read for identifier in find_identifiers(item.hit.shown_text)}
    if asked and asked.isdisjoint(found):
        return 0.0
    return estimate_confidence(
        question,
        [item.row for item in read],
        [item.reading for item in read],
        [item.hit.score or 0.0 for item in read],
    )
