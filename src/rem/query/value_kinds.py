"""Tell which kind of value a question asks for, and which kinds a sentence has: a time, a number, a place, a reason.

"When do we meet?" is answered by a sentence with a day or a time. This is a matter of words and signs, without a
language model. The rules are English; a question in another language asks for any value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Literal, TypeAlias

from rem.rules import alternatives, word_set
from rem.text import STOP_WORDS

ValueKind: TypeAlias = Literal["time", "day", "duration", "number", "place", "reason", "code", "name"]

_TIME = re.compile(r"\b\d{1,2}[:.]\d\d\b|\b\d{1,2} ?(?:am|pm|o'clock)\b|\b(?:noon|midnight)\b")
_DAY = re.compile(
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b\d{1,2}(?:st|nd|rd|th)\b"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b|\b(?:today|tomorrow|tonight)\b"
)
_PLACE = re.compile(
    r"\b(?:in|at|to|near|(?<!now )on|behind|under|next to)\s+(?:(?:the|my|our|his|her|their|an?)\s+)?([a-z][\w-]+)"
)
_CODE = re.compile(r"\b(?=[\w./-]*\d)\w[\w./-]{3,}|\b[a-z]+-\d+|\b\d{4,}\b|\b\d{3,}(?:[ -]\d{2,})+\b")
_DURATION = re.compile(
    r"\b(?:\d+|an?|half an?|two|three|four|five|six|seven|eight|nine|ten|twelve|fourteen|forty|few|couple of)"
    r"[ -](?:minute|min|hour|day|night|week|month|year)s?\b|\b(?:until|till)\b"
)
_NAME = re.compile(r"(?<![.!?:]\s)(?<!\A)\b[A-ZÀ-Þ][\w'’-]+")


def find_wanted_kinds(question: str) -> frozenset[ValueKind]:
    """Return the kinds of values of which one answers a question; empty if any value may."""
    text = question.lower().replace("’", "'")
    return next((kinds for pattern, kinds in _wanted() if pattern.search(text)), frozenset())


def find_value_kinds(text: str) -> frozenset[ValueKind]:
    """Return the kinds of the values in a text."""
    return frozenset(_iterate_kinds(text, text.lower().replace("’", "'")))


def _iterate_kinds(text: str, folded: str) -> Iterator[ValueKind]:
    if _TIME.search(folded) or _hours().search(folded):
        yield "time"
    if _DAY.search(folded) or _days().search(folded):
        yield "day"
    if _DURATION.search(folded):
        yield "duration"
    if re.search(r"\d", folded) or _numbers().search(folded):
        yield "number"
    if any(not _DAY.fullmatch(place) and place not in _empty_words() for place in _PLACE.findall(folded)):
        yield "place"
    if _reasons().search(folded):
        yield "reason"
    if _CODE.search(folded):
        yield "code"
    if _NAME.search(text):
        yield "name"


@cache
def _wanted() -> tuple[tuple[re.Pattern[str], frozenset[ValueKind]], ...]:
    """Return the kinds of values for the words that ask for them. The first pattern that matches counts."""
    kinds: tuple[tuple[str, tuple[ValueKind, ...]], ...] = (
        ("time", ("time", "day")),
        ("code", ("code",)),
        ("place", ("place",)),
        ("duration", ("duration",)),
        ("number", ("number",)),
        ("reason", ("reason",)),
        ("name", ("name",)),
    )
    return tuple(
        (re.compile(rf"\b{alternatives(f'values.asked.{name}')}\b"), frozenset(wanted)) for name, wanted in kinds
    )


@cache
def _hours() -> re.Pattern[str]:
    return re.compile(rf"\b{alternatives('values.hours')}\b")


@cache
def _days() -> re.Pattern[str]:
    return re.compile(rf"\b{alternatives('values.days')}\b")


@cache
def _numbers() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(sorted(word_set('values.numbers')))})\b")


@cache
def _reasons() -> re.Pattern[str]:
    return re.compile(rf"\b{alternatives('values.reasons')}\b")


@cache
def _empty_words() -> frozenset[str]:
    return STOP_WORDS - word_set("names.calendar_words") - word_set("message_kinds.time_words") - {"work", "place"}
