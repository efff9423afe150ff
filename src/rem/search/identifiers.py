"""Recognise what must be matched letter by letter: identifiers (AB-2291, v2.14.3, app.py) and quoted phrases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rem.text import FUNCTION_WORDS

MAX_YEAR_CONTEXT_CHARS = 40
MAX_EXACT_ITEMS = 8
"""A query with more of them is a text, and the first ones are enough."""
_QUOTED = re.compile(
    r"\"([^\"]{2,200})\"|“([^“”]{2,200})”|„([^„“”]{2,200})[“”]|«([^«»]{2,200})»"
    # A single quote may be an apostrophe: only a pair around whole words counts.
    r"|(?<!\w)'(?=\w)([^']{2,200})(?<=\w)'(?!\w)"
)
_SEPARATOR = r"[-_./@:\\+]"
_IDENTIFIER_SIGN = re.compile(rf"\d|\w{_SEPARATOR}")
"""Most texts have no identifier, and this tells it without looking at each of their words."""
_TOKEN = re.compile(rf"\d{{1,3}}(?:,\d{{3}})+(?!\d)|[^\W_]+(?:{_SEPARATOR}[^\W_]+)*")
_PHONE_NUMBER = re.compile(r"(?<![\w.,/-])(\+?\(?\d[\d ()./-]{5,}\d)(?!\w)")
_SPACED_CODE = re.compile(r"(?<![\w-])([A-Z]{1,4}) (\d{2,6})(?![\w-])")
"""A code of letters and a number, as in flight SK 1427."""
_NUMBERED_WORD = re.compile(r"(?<![\w-])([^\W\d_]{3,}) (?:[Nn]o\. ?|#)?(\d{1,2})(?![\w.,:/-]*\w)")
"""A word and a small number, as in gate 22. The number alone would be too common."""
_GROUP = re.compile(r"[^\W\d_]+|\d+")
_QUANTITY = re.compile(
    r"\A\d+(st|nd|rd|th|s|am|pm|h|k|km|m|cm|mm|mi|ft|kg|g|mg|lb|lbs|l|ml|min|hrs?|mph|kmh|px|gb|mb|kb)", re.IGNORECASE
)
_DATE = re.compile(r"(19|20)\d\d[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]((19|20)\d\d|\d\d)")
_YEAR = re.compile(r"(19|20)\d\d")
_VERSION = re.compile(r"[vV](\d+(?:\.\d+)+)")
_YEAR_FOLLOWS = re.compile(
    r"\b(in|since|of|by|from|until|till|before|after|during|between|and|to|for|early|late|mid|years?"
    r"|jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?"
    r"|spring|summer|autumn|fall|winter|easter|christmas)\.?[\s,]*(\d\d?(st|nd|rd|th)?,?\s+)?\Z",
    re.IGNORECASE,
)
"""Words that say that a year follows: "in 2021", "May 8, 2023", but not "ticket 2021"."""
MIN_PHONE_DIGITS, MAX_PHONE_DIGITS = 7, 15
MIN_NUMBER_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Identifier:
    """An identifier of a text, as groups of letters and digits: AB and 2291."""

    text: str
    groups: tuple[str, ...]
    is_phone_number: bool = False

    @property
    def joined(self) -> str:
        """The identifier without separators, so that AB-2291, AB 2291 and AB2291 are the same word."""
        return "".join(self.groups).lower()

    @property
    def parts(self) -> Iterator[str]:
        """The groups that PostgreSQL does not see as words: it reads AB-2291 as AB and -2291, and app.py as one."""
        if not self.is_phone_number and " " not in self.text:
            has_words = "-" in self.text and not set(self.text) & set("_./@:\\+")
            yield from (group.lower() for group in self.groups if group[0].isdigit() or not has_words)


def find_identifiers(text: str) -> Iterator[Identifier]:
    """Yield the identifiers of a text: tokens with digits, dots, underscores or an @, and phone numbers."""
    if not _IDENTIFIER_SIGN.search(text):
        return
    rest = list(text)
    for match in _PHONE_NUMBER.finditer(text):
        number = match.group()
        digits = tuple(re.findall(r"\d+", number))
        if _is_phone_number(number, digits):
            yield Identifier(number, digits, is_phone_number=True)
            if number.startswith("+") and len(digits) > 1:
                # The same number is often written without the code of the country.
                yield Identifier(number, digits[1:], is_phone_number=True)
            start, end = match.span()
            rest[start:end] = " " * len(number)
    text = "".join(rest)
    for match in _SPACED_CODE.finditer(text):
        yield Identifier(match.group(), match.groups())
    for match in _TOKEN.finditer(text):
        token = match.group()
        version = _VERSION.fullmatch(token)
        if _is_identifier(token) and not (_YEAR.fullmatch(token) and _year_follows(text, match.start())):
            yield Identifier(token, tuple(_GROUP.findall(version.group(1) if version else token)))


def _year_follows(text: str, position: int) -> bool:
    """Return whether the words before a position announce a year, such as "since"."""
    return _YEAR_FOLLOWS.search(text[max(0, position - MAX_YEAR_CONTEXT_CHARS) : position]) is not None


def _is_phone_number(text: str, digits: tuple[str, ...]) -> bool:
    count = sum(map(len, digits))
    is_years = all(_YEAR.fullmatch(group) for group in digits)
    return MIN_PHONE_DIGITS <= count <= MAX_PHONE_DIGITS and not _DATE.search(text) and not is_years


def _is_identifier(token: str) -> bool:
    if _QUANTITY.fullmatch(token):
        return False
    digits = sum(character.isdigit() for character in token)
    if digits:
        return digits >= MIN_NUMBER_DIGITS or any(character.isalpha() for character in token)
    # Without a digit: an e-mail address, the name of a file or of code. Not "and/or", "well-known" or "e.g".
    parts = re.split(_SEPARATOR, token)
    if "@" in token or "_" in token or (len(parts) > 2 and "-" not in token):
        return len(token) > len(parts) * 2
    return "." in token and len(parts) == 2 and min(map(len, parts)) > 1


def find_identifier_words(text: str) -> str:
    """Return the words to index in addition to a text: its identifiers, joined and in parts. So all forms match."""
    words: dict[str, None] = {}
    for identifier in find_identifiers(text):
        plain = identifier.text.lower()
        for word in (identifier.joined, *identifier.parts):
            if word != plain and len(word) > 1:
                words[word] = None
    return " ".join(words)


def find_exact_items(query: str) -> list[dict[str, Any]]:
    """Return the identifiers and quoted phrases of a query, as `rem_search` expects them.

    `pattern` is a regular expression of PostgreSQL for the text of a row. `words` are texts of which a row must have
    all words of at least one.
    """
    items: dict[str, list[str]] = {}
    for match in _QUOTED.finditer(query):
        phrase = next(group for group in match.groups() if group)
        _add_phrase(items, phrase)
    rest = _QUOTED.sub(" ", query)
    for match in _NUMBERED_WORD.finditer(rest):
        if match.group(1).lower() not in FUNCTION_WORDS:
            _add_phrase(items, f"{match.group(1)} {match.group(2)}")
    for identifier in find_identifiers(rest):
        items.setdefault(_identifier_pattern(identifier), [identifier.joined, identifier.text])
    return [{"pattern": pattern, "words": words} for pattern, words in list(items.items())[:MAX_EXACT_ITEMS]]


def _add_phrase(items: dict[str, list[str]], phrase: str) -> None:
    words = re.findall(r"[^\W_]+", phrase)
    if words:
        items.setdefault(_bounded("[^[:alnum:]]+".join(words), words[0][0], words[-1][-1]), [phrase])


def _identifier_pattern(identifier: Identifier) -> str:
    """Return a pattern that allows other separators: AB-2291 also matches AB 2291, but 2.14 does not match 214."""
    if identifier.is_phone_number:
        digits = "".join(identifier.groups)
        return _bounded("[-[:space:]./()]*".join(digits), digits[0], digits[-1])
    pattern = identifier.groups[0]
    for before, group in zip(identifier.groups, identifier.groups[1:], strict=False):
        is_same_kind = before[-1].isdigit() == group[0].isdigit()
        pattern += f"[^[:alnum:]]{{{int(is_same_kind)},2}}{group}"
    prefix = "v?" if identifier.groups[0].isdigit() and len(identifier.groups) > 1 else ""
    return _bounded(pattern, identifier.groups[0][0], identifier.groups[-1][-1], prefix)


def _bounded(pattern: str, first: str, last: str, prefix: str = "") -> str:
    """Return a pattern that matches only whole words. Scripts without capital letters are written without spaces."""
    before = rf"(?<![[:alnum:]])(?<![0-9][.]){prefix}" if _has_boundary(first) else ""
    after = r"(?![[:alnum:]])(?![.][0-9])" if _has_boundary(last) else ""
    return before + pattern + after


def _has_boundary(character: str) -> bool:
    return character.isdigit() or character.lower() != character.upper()
