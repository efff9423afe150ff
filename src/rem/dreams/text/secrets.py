"""Secrets: finds sentences with a credential. They stay in their messages, and no dream repeats them.

`rem.privacy` finds credentials and card numbers by their format, in every text that is stored. A dream is stricter: it
also leaves out a sentence that gives the value of a password, PIN, key or token in plain words (in English or German),
or contains a long random token. In doubt, a sentence is left out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import pairwise

from rem.privacy.detector import PrivacyKind, find_private_data
from rem.rules import alternatives, word_set, word_sets
from rem.text import find_sentence_spans, split_sentences

_QUOTE_MARKS = r"[\"'`*]{0,3}"
"""A name may be quoted, as in JSON, or bold."""
_PURPOSE = rf"(?:[ \t]+{alternatives('secrets.prepositions')}[ \t]++[^.!?:=\n]{{1,40}}?)?"
""" "for the router" """
_IS = (
    rf"[ \t]*(?:{alternatives('secrets.is_words')}\b|[:=]|[ \t]are\b)"
    rf"(?:[ \t]*{alternatives('secrets.now_words')}\b)?[:\s]*"
)
_CREDENTIAL = re.compile(
    rf"\b{alternatives('secrets.credential_names')}\b"
    rf"{_QUOTE_MARKS}{_PURPOSE}{_IS}(?P<value>\S{{1,200}})(?=(?P<rest>[ \t]*\w*))",
    re.IGNORECASE,
)
_KEY = re.compile(
    rf"(?:\b|_){alternatives('secrets.key_names')}\b{_QUOTE_MARKS}{_PURPOSE}(?:{_IS}|\s+)(?P<value>\S{{8,200}})",
    re.IGNORECASE,
)
_DIRECT_VALUE = re.compile(
    rf"\b{alternatives('secrets.direct_names')}[ \t]+(?P<value>\S{{4,200}})"
    rf"|\b{alternatives('secrets.pin_names')}[ \t]+(?P<digits>\d{{4,8}})\b",
    re.IGNORECASE,
)
_KNOWN_KEY = re.compile(r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{12,200}")
"""Keys by their prefix. `rem.privacy` masks them only if they look random."""
_LONG_TOKEN = re.compile(r"(?<![\w/+=-])[A-Za-z0-9_+=-]{24,500}(?![\w/+=-])")
_DIGIT, _UPPER, _LOWER = re.compile(r"\d"), re.compile(r"[A-Z]"), re.compile(r"[a-z]")
_QUOTES = "\"'`“”„‘’«»()<>[]{}"
_HARMLESS_VALUES = word_set("secrets.harmless_values")
_PRIVATE_KINDS = frozenset({PrivacyKind.CREDENTIALS, PrivacyKind.CARD_NUMBERS})


def contains_secret(text: str) -> bool:
    """Return whether a text contains a credential."""
    return next(_find_secrets(text), None) is not None


def mask_secrets(text: str) -> str:
    """Return the text with spaces in place of each sentence with a credential. All offsets stay."""
    secrets = list(_find_secrets(text))
    if not secrets:
        return text
    parts, done = [], 0
    for start, end in _widen_to_sentences(text, secrets):
        parts += [text[done:start], " " * (end - start)]
        done = end
    return "".join([*parts, text[done:]])


def _widen_to_sentences(text: str, spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the span of each sentence that overlaps one of the spans, in their order."""
    remaining = iter(sorted(spans))
    span: tuple[int, int] | None = next(remaining, None)
    covered_to = 0
    for start, end in find_sentence_spans(text):
        while span is not None and span[0] < end:
            covered_to = max(covered_to, span[1])
            span = next(remaining, None)
        if covered_to > start:
            yield start, end


def _find_secrets(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of each credential."""
    yield from ((finding.start, finding.end) for finding in find_private_data(text, _PRIVATE_KINDS))
    for pattern, is_secret in SECRET_PATTERNS:
        yield from (match.span() for match in pattern.finditer(text) if is_secret(match))


def _strip_quotes(value: str) -> str:
    return value.strip(_QUOTES).rstrip(".,;:!?").strip(_QUOTES)


def _is_password(value: str, *, is_followed: bool) -> bool:
    """Return whether the word after "the password is" is one: quoted, with digits or signs, or the last word."""
    bare = _strip_quotes(value)
    if not bare or bare.lower() in _HARMLESS_VALUES:
        return False
    is_quoted = value[0] in _QUOTES
    is_last = not is_followed or value[-1] in ".,;!?"
    return is_quoted or _has_digit_or_sign(bare) or is_last


def _has_digit_or_sign(value: str) -> bool:
    """Return whether a value has digits, or signs that no word has."""
    return len(value) >= 4 and (_DIGIT.search(value) is not None or re.search(r"[^\w'’.,/-]", value) is not None)


def _is_token(value: str) -> bool:
    bare = _strip_quotes(value)
    letters = sum(map(str.isalpha, bare))
    digits = sum(map(str.isdigit, bare))
    has_digits = digits >= 2 or (digits == 1 and len(bare) >= 16)
    return len(bare) >= 8 and has_digits and letters >= 2 and "://" not in bare and not bare.startswith("/")


def _is_random(value: str) -> bool:
    """Return whether a value mixes upper case, lower case and digits, as no name and no hash does."""
    return all(len(kind.findall(value)) >= 3 for kind in (_DIGIT, _UPPER, _LOWER))


SECRET_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], bool]], ...] = (
    (_KNOWN_KEY, lambda match: True),
    (_LONG_TOKEN, lambda match: _is_random(match.group())),
    (_CREDENTIAL, lambda match: _is_password(match["value"], is_followed=bool(match["rest"].strip()))),
    (_KEY, lambda match: _is_token(match["value"])),
    (_DIRECT_VALUE, lambda match: bool(match["digits"]) or _has_digit_or_sign(_strip_quotes(match["value"]))),
)
"""Patterns of secrets, each with the check that tells a secret from something that only looks like one."""


_SENSITIVE_WORDS = frozenset[str]().union(*word_sets("sensitive").values())
_WORD = re.compile(r"[^\W_]+")
_ACCOUNT_NUMBER = re.compile(r"\b\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b|\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,}")


def is_sensitive(text: str) -> bool:
    """Return whether a text has a word, or a pair of words, of a sensitive topic, a secret key or an account number."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    pairs = {f"{first}-{second}" for first, second in pairwise(words)}
    singular = {word.rstrip("s") for word in words}
    has_number = bool(
        _ACCOUNT_NUMBER.search(text) or _KNOWN_KEY.search(text) or find_private_data(text, _PRIVATE_KINDS)
    )
    return has_number or not _SENSITIVE_WORDS.isdisjoint({*words, *pairs, *singular})


def remove_sensitive_sentences(text: str) -> str:
    """Return the text without its sensitive sentences."""
    return " ".join(sentence for sentence in split_sentences(text) if not is_sensitive(sentence))
