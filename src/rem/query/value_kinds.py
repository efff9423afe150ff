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
from rem.text import STOP_WORDS, split_words

ValueKind: TypeAlias = Literal["time", "day", "duration", "number", "place", "origin", "reason", "code", "name"]

_TIME = re.compile(
    r"(?<![\d.,])(?:[01]?\d|2[0-4])[:.][0-5]\d\b(?![.,]\d)|\b\d{1,2} ?(?:am|pm|o'clock)\b|\b(?:noon|midnight)\b"
)
_DAY = re.compile(
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b\d{1,2}(?:st|nd|rd|th)\b"
    r"|\b(?:mon|tue|tues|wed|thu|thur|thurs|fri|sat|sun)\b(?=\s*(?:\d|at\b|\+|and\b|morning|evening|night|[,.]|\Z))"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b|\b(?:today|tomorrow|tonight|tmrw|tmr)\b"
)
_PLACE = re.compile(
    r"\b(?:in|at|to|near|(?<!now )on|behind|under|next to)\s+(?:(?:the|my|our|his|her|their|an?)\s+)?([a-z][\w-]+)"
)
_HERE = re.compile(
    r"\b(?:back|at|went|came|stays?|staying|is|are) (?:home|here|there|upstairs|downstairs|outside|inside|abroad)\b"
)
_ORIGIN = re.compile(
    r"\b[Ff]rom (?:(?:the|my|our|his|her|their|a) [a-z]|(?!(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)[A-ZÀ-Þ])"
)
_CODE = re.compile(r"\b(?=[\w./-]*\d)\w[\w./-]{3,}|\b[a-z]+-\d+|\b\d{4,}\b|\b\d{3,}(?:[ -]\d{2,})+\b")
_NUMBER = re.compile(
    r"(?<![\w-])\d{1,3}(?:[., ]\d{3})*(?:[.,]\d+)?(?:\s?[a-z%€$£]{1,3})?(?![\w/-]|[:.]\d)|\b\d{4,6}\b(?!-)|[€$£]\d"
)
"""A number that counts or measures something, and no part of a code."""
_DURATION = re.compile(
    r"\b(?:\d+|an?|half an?|two|three|four|five|six|seven|eight|nine|ten|twelve|fourteen|forty|few|couple of)"
    r"[ -](?:minute|min|hour|hr|day|night|week|month|year|yr)s?\b|\b\d+ ?(?:h|hrs?|mins?)\b|\b(?:until|till?)\b"
)
_NAME = re.compile(r"(?<![.!?:]\s)(?<!\A)\b[A-ZÀ-Þ][\w'’-]+|\b(?:Dr|Mrs?|Ms|Miss|Prof|Frau|Herr)\.? [A-ZÀ-Þ][\w'’-]+")
_FIRST_WORD = re.compile(r"(?:\A|[.!?:]\s)\W*([A-ZÀ-Þ][\w'’-]+)")
_CAPITAL = re.compile(r"[A-ZÀ-Þ]")


def find_wanted_kinds(question: str) -> frozenset[ValueKind]:
    """Return the kinds of values of which one answers a question; empty if any value may."""
    text = question.lower().replace("’", "'")
    return next((kinds for pattern, kinds in _wanted() if pattern.search(text)), frozenset())


def find_value_kinds(text: str) -> frozenset[ValueKind]:
    """Return the kinds of the values in a text."""
    return frozenset(_iterate_kinds(text, text.lower().replace("’", "'")))


def find_names(text: str) -> frozenset[str]:
    """Return the words with a capital inside of a sentence, in lower case, without days and months."""
    words = (word for name in _NAME.findall(text) for word in split_words(join_genitives(name)))
    return frozenset(words) - word_set("names.calendar_words") - word_set("names.function_words")


def find_possible_names(text: str) -> frozenset[str]:
    """Return the words that may be names, in lower case: also the first one of a sentence.

    Of a text without capitals, these are all words with content.
    """
    firsts = _FIRST_WORD.findall(text) if _CAPITAL.search(text) else split_words(join_genitives(text))
    words = (word for first in firsts for word in split_words(join_genitives(first)))
    known = STOP_WORDS | word_set("names.calendar_words") | word_set("names.function_words") | word_set("tags.verbs")
    possible = (word for word in words if word not in known and word.isalpha() and not word.endswith(("ed", "ing")))
    return find_names(text) | frozenset(possible)


def join_genitives(text: str) -> str:
    """Return a text without apostrophes and genitives."""
    return text.replace("’", "'").replace("'s", "").replace("'", "")


def _iterate_kinds(text: str, folded: str) -> Iterator[ValueKind]:
    if _TIME.search(folded) or _hours().search(folded):
        yield "time"
    if _DAY.search(folded) or _days().search(folded):
        yield "day"
    if _DURATION.search(folded):
        yield "duration"
    if _NUMBER.search(folded) or _numbers().search(folded):
        yield "number"
    if _HERE.search(folded) or any(
        not _DAY.fullmatch(place) and place not in _placeless_words() for place in _PLACE.findall(folded)
    ):
        yield "place"
    if _ORIGIN.search(text):
        yield "origin"
    if _reasons().search(folded):
        yield "reason"
    if _CODE.search(folded):
        yield "code"
    if find_names(text):
        yield "name"


@cache
def _wanted() -> tuple[tuple[re.Pattern[str], frozenset[ValueKind]], ...]:
    """Return the kinds of values for the words that ask for them. The first pattern that matches counts."""
    kinds: tuple[tuple[str, tuple[ValueKind, ...]], ...] = (
        ("time", ("time", "day")),
        ("code", ("code",)),
        ("numbering", ("code", "number")),
        ("origin", ("place", "origin")),
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
def _placeless_words() -> frozenset[str]:
    """Return the words after a preposition that name no place: "in the evening", "at least"."""
    return (STOP_WORDS | word_set("message_kinds.time_words") | word_set("values.numbers")) - {"work", "place"}
