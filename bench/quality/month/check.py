"""Check that a month verifies itself: its texts hold every expected answer, and its figures can be computed again."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TypeAlias

from bench.quality.month.data import GROUPS, Computation, Month, MonthPerson, MonthQuestion
from bench.quality.month.texts import DATE_PREFIX, holds, plain

MIN_QUESTIONS, MIN_UNANSWERABLE = 10, 16
"""The least number of questions in a group."""
MIN_NOTES, MIN_TALKS, PEOPLE = 60, 30, 2
MAX_SHARED_WORDS = 8
"""A run of this many words that also stands in a text of others was copied."""
REPOSITORY = Path(__file__).parents[3]
OTHER_TEXTS = (
    *("training/weeks/**/*.yaml", "training/dialogues/**/*.txt", "training/assistant_chats/*.txt"),
    *("bench/quality/week/*.yaml", "training/*.yaml"),
)
Row: TypeAlias = dict[str, str]
_COMPARED = re.compile(r"(>=|<=|>|<)\s*(-?[\d.]+)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(?:\[([ xX])\]\s+)?(\S.*)$")


def find_problems(month: Month) -> list[str]:
    """Return what is wrong with a whole month: sizes, questions and copied texts."""
    return [*_check_sizes(month), *_check_ids(month), *check_questions(month), *find_copied_texts(month)]


def check_questions(month: Month) -> Iterator[str]:
    """Yield what is wrong with single questions."""
    for person in month.people:
        everything = "\n".join([*(note.text for note in person.notes), *(talk.text for talk in person.talks)])
        for question in person.questions:
            for problem in _check_question(person, question, everything):
                yield f"{question.id}: {problem}"


def find_copied_texts(month: Month) -> Iterator[str]:
    """Yield each person and file of other data that share a run of words."""
    runs = {person.user: set().union(*(_word_runs(text) for text in _texts_of(person))) for person in month.people}
    for path in sorted(path for pattern in OTHER_TEXTS for path in REPOSITORY.glob(pattern)):
        found = _word_runs(path.read_text(encoding="utf-8"))
        for user, own in runs.items():
            if shared := own & found:
                yield f"{user}: “{min(shared)}” is also in {path.relative_to(REPOSITORY)}"
    for index, person in enumerate(month.people):
        for other in month.people[:index]:
            if shared := runs[person.user] & runs[other.user]:
                yield f"{person.user}: “{min(shared)}” is also a text of {other.user}"


def _texts_of(person: MonthPerson) -> Iterator[str]:
    yield from (note.text for note in person.notes)
    yield from (message.text for talk in person.talks for message in talk.messages)
    yield from (question.ask for question in person.questions)


def _word_runs(text: str) -> set[str]:
    words = re.findall(r"\w+", text.casefold())
    return {" ".join(words[start : start + MAX_SHARED_WORDS]) for start in range(len(words) - MAX_SHARED_WORDS + 1)}


def _check_sizes(month: Month) -> Iterator[str]:
    counts = Counter(question.group for question in month.questions)
    for group in GROUPS:
        least = MIN_UNANSWERABLE if group == "unanswerable" else MIN_QUESTIONS
        if counts[group] < least:
            yield f"{group} has {counts[group]} questions, fewer than {least}"
    sizes = (
        ("people", len(month.people), PEOPLE),
        ("notes", sum(len(person.notes) for person in month.people), MIN_NOTES),
        ("talks", sum(len(person.talks) for person in month.people), MIN_TALKS),
    )
    for name, size, least in sizes:
        if size < least:
            yield f"the month has {size} {name}, fewer than {least}"


def _check_ids(month: Month) -> Iterator[str]:
    for what in ("id", "ask"):
        counts = Counter(getattr(question, what).casefold() for question in month.questions)
        yield from (f"{value!r} is the `{what}` of {count} questions" for value, count in counts.items() if count > 1)


def _check_question(person: MonthPerson, question: MonthQuestion, everything: str) -> Iterator[str]:
    yield from (f"“{word}” is not absent" for word in question.absent if holds(everything, word))
    if not question.is_answerable:
        return
    computed: list[str] = []
    if question.compute:
        try:
            computed = compute(person, question, question.compute)
        except (ValueError, LookupError) as error:
            yield f"cannot be computed: {error}"
            return
        yield from _check_computed(question, question.compute, computed)
    sources = "\n".join(person.text_of(source) for source in question.source)
    for requirement in question.expect:
        is_computed = any(_matches(requirement, value) for value in computed)
        if not is_computed and not any(holds(sources, alternative) for alternative in requirement):
            yield f"no source has “{' | '.join(requirement)}”"
    yield from _check_forbidden(person, question)
    if question.is_answered_by(question.ask):
        yield "the question has its answer in it"


def _check_forbidden(person: MonthPerson, question: MonthQuestion) -> Iterator[str]:
    outdated = "\n".join(person.text_of(source) for source in (*question.source, *question.superseded))
    for value in question.forbidden:
        if not holds(outdated, value):
            yield f"no source has the forbidden “{value}”"
        if any(holds(alternative, value) for requirement in question.expect for alternative in requirement):
            yield f"the forbidden “{value}” is a part of what is expected"


def _check_computed(question: MonthQuestion, computation: Computation, computed: list[str]) -> Iterator[str]:
    if computation.do == "list":
        missing = [
            value for value in computed if not any(_matches(requirement, value) for requirement in question.expect)
        ]
        surplus = [item for item in question.expect if not any(_matches(item, value) for value in computed)]
        if missing or surplus:
            yield f"the list is {computed}: not expected {missing}, not in it {surplus}"
    elif not any(_matches(requirement, value) for requirement in question.expect for value in computed[:1]):
        yield f"computed {computed[0]}, which is not expected"


def _matches(requirement: list[str], value: str) -> bool:
    return any(holds(value, alternative) for alternative in requirement)


def compute(person: MonthPerson, question: MonthQuestion, computation: Computation) -> list[str]:
    """Return the values that follow from the sources; the first one must be expected, of a list all."""
    if computation.do == "date":
        return [_compute_date(person, question, computation)]
    rows = list(_read_rows(person, question, computation))
    if not rows:
        raise ValueError("no row fits")
    column, give = computation.column or "value", computation.give or computation.column or "value"
    match computation.do:
        case "count":
            return [str(len(rows))]
        case "list":
            return [row[give] for row in rows]
        case "sum":
            return [_format(sum((_to_number(row[column]) for row in rows), Decimal(0)))]
        case _:
            choose = max if computation.do == "max" else min
            value = choose(_to_number(row[column]) for row in rows)
            best = [row for row in rows if _to_number(row[column]) == value]
            if len(best) > 1:
                raise ValueError(f"{len(best)} rows have the {computation.do} {value}")
            return [best[0][give], _format(value)]


def _compute_date(person: MonthPerson, question: MonthQuestion, computation: Computation) -> str:
    talk = next((talk for talk in person.talks if talk.id == computation.talk), None)
    if talk is None or computation.words is None or computation.days is None:
        raise ValueError("`date` needs `talk`, `words` and `days`")
    if talk.id not in question.source or not holds(talk.text, computation.words):
        raise ValueError(f"“{computation.words}” is not in the source {talk.id}")
    return f"{DATE_PREFIX}{talk.at.date() + timedelta(days=computation.days)}"


def _read_rows(person: MonthPerson, question: MonthQuestion, computation: Computation) -> Iterator[Row]:
    """Yield the rows that a computation is over."""
    if computation.values:
        sources = "\n".join(person.text_of(source) for source in question.source)
        for value in computation.values:
            if not holds(sources, value):
                raise ValueError(f"no source has “{value}”")
            yield {"value": value}
        return
    if computation.file not in question.source:
        raise ValueError("`file` must be one of the sources")
    text = person.text_of(computation.file)
    if computation.under:
        text = _section(text, computation.under)
    rows: Iterable[Row]
    if computation.items:
        rows = _list_items(text, computation.items)
    elif computation.file.endswith(".csv"):
        rows = csv.DictReader(io.StringIO(text))
    else:
        rows = _table_rows(text)
    for row in rows:
        if all(_fits(row[column], condition) for column, condition in computation.where.items()):
            yield row


def _section(text: str, heading: str) -> str:
    """Return the text below a heading, up to the next one of its level or above."""
    match = re.search(rf"^(#+) +{re.escape(heading)} *$", text, re.MULTILINE)
    if match is None:
        raise ValueError(f"there is no heading “{heading}”")
    return re.split(rf"^#{{1,{len(match[1])}}} ", text[match.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def _list_items(text: str, items: str) -> Iterator[Row]:
    for line in text.splitlines():
        match = _ITEM.match(line)
        state = {None: "all", " ": "open", "x": "done", "X": "done"}[match[1]] if match else ""
        if match and items in ("all", state):
            yield {"value": match[2]}


def _table_rows(text: str) -> Iterator[Row]:
    """Yield the rows of the first Markdown table."""
    header: list[str] | None = None
    for line in text.splitlines():
        if not line.lstrip().startswith("|"):
            if header is not None:
                return
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if header is None:
            header = cells
        elif not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            yield dict(zip(header, cells, strict=True))


def _fits(cell: str, condition: str) -> bool:
    compared = _COMPARED.fullmatch(condition)
    if compared is None:
        return holds(cell, condition) if condition else not cell.strip()
    number, limit = _to_number(cell), Decimal(compared[2])
    return {">": number > limit, ">=": number >= limit, "<": number < limit, "<=": number <= limit}[compared[1]]


def _to_number(text: str) -> Decimal:
    """Return the first number of a text."""
    match = _NUMBER.search(plain(text))
    try:
        return Decimal(match[0] if match else "")
    except InvalidOperation as error:
        raise ValueError(f"“{text}” has no number") from error


def _format(number: Decimal) -> str:
    return str(number.quantize(Decimal(1)) if number == number.to_integral_value() else number)
