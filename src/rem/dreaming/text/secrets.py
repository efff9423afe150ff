"""Secrets: sentences that hand over a credential. They stay where they were said, and no dream repeats them.

A sentence is one if it says what a password, passphrase, PIN, key or token is (in English or German), or has the number
of a payment card, a private key, or a long random token in it. It errs on the side of leaving out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from rem.dreaming.sentences import find_sentence_spans

_MARKS = r"[\"'`*]{0,3}"
"""A name may be quoted, as in JSON, or bold."""
_WORDS_BETWEEN = r"(?:[ \t]+(?:for|of|to|on|at|in|from|vom|von|für|zum|zur|zu|im|am|beim)[ \t]+[^.!?:=\n]{1,40}?)?"
_IS = r"[ \t]*(?:(?:is|was|ist|war|lautet|to|auf|heißt)\b|[:=]|[ \t]are\b)(?:[ \t]*(?:now|set to|jetzt|nun)\b)?[:\s]*"
_SAID = re.compile(
    r"\b(?:pass[ -]?(?:word|phrase|code)s?|passwd|pwd|passw(?:ort|örter|ortes)|kennwort|zugangscode|"
    r"(?:login|log-in|anmelde|zugangs)daten|credentials?|geheimzahl|pin(?:[ -]?code|[ -]?nummer)?|cvv|cvc|tan|"
    r"wi-?fi[ -]?key|wlan-?schlüssel)\b"
    rf"{_MARKS}{_WORDS_BETWEEN}{_IS}(?P<value>\S{{1,200}})(?=(?P<rest>[ \t]*\w*))",
    re.IGNORECASE,
)
_KEYED = re.compile(
    r"(?:\b|_)(?:api[ _-]?(?:key|token|schlüssel)|access[ _-]?(?:key|token)|auth[ _-]?token|bearer|token|"
    r"secret(?:[ _-]?key)?|private[ _-]?key|ssh[ _-]?key|recovery[ _-]?code|backup[ _-]?code|geheimnis|zugriffstoken)\b"
    rf"{_MARKS}{_WORDS_BETWEEN}(?:{_IS}|\s+)(?P<value>\S{{8,200}})",
    re.IGNORECASE,
)
_DIRECT = re.compile(
    r"\b(?:password|passphrase|passcode|passwort|kennwort|geheimzahl)[ \t]+(?P<value>\S{4,200})"
    r"|\b(?:pin|tan)[ \t]+(?P<figures>\d{4,8})\b",
    re.IGNORECASE,
)
_CARD = re.compile(r"(?<![\d.,-])\d(?:[ -]?\d){12,18}(?![\d])")
_KNOWN_KEY = re.compile(
    r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{12,200}|\b(?:ghp|gho|ghs|ghu|glpat|xox[abprs]|hf|npm|pypi)[-_][A-Za-z0-9_-]{12,200}"
    r"|\bAKIA[A-Z0-9]{12,20}|\beyJ[A-Za-z0-9_-]{12,500}"
)
_LONG = re.compile(r"(?<![\w/+=-])[A-Za-z0-9_+=-]{24,500}(?![\w/+=-])")
_DIGIT, _UPPER, _LOWER = re.compile(r"\d"), re.compile(r"[A-Z]"), re.compile(r"[a-z]")
_QUOTES = "\"'`“”„‘’«»()<>[]{}"
_PLAIN = """
a an the my your our their his her its this that these those not no never too very so still always only also
already stored saved kept written hidden wrong right correct incorrect weak strong safe secure insecure valid
invalid expired missing required needed optional empty unknown lost gone changed reset set rotated shared
leaked hashed encrypted protected ok okay fine good bad long short easy hard old new what where when why how
who which it there here in on at by for from with to of and or but be been being is are was were going about
under over due ready ein eine der die das den dem mein dein unser ihr sein nicht kein keine zu sehr noch immer
nur auch schon falsch richtig schwach stark sicher unsicher gültig ungültig abgelaufen weg leer lang kurz alt
neu im auf bei für von mit und oder gespeichert geändert vergessen verloren
"""
NOT_A_SECRET_WORDS = frozenset(_PLAIN.split())
"""What may follow "the password is" without being one."""
_BEGIN, _END = "-----BEGIN", "-----END"


def contains_secret(text: str) -> bool:
    """Whether a text hands over a credential."""
    return next(_find_secrets(text), None) is not None


def mask_secrets(text: str) -> str:
    """A text in which the sentences that hand over a credential are blank, so that nothing moves."""
    found = list(_find_secrets(text))
    if not found:
        return text
    parts, done = [], 0
    for start, end in _widen_to_sentences(text, found):
        parts += [text[done:start], " " * (end - start)]
        done = end
    return "".join([*parts, text[done:]])


def _widen_to_sentences(text: str, found: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The sentences that places are in, each once, in their order."""
    places = iter(sorted(found))
    place: tuple[int, int] | None = next(places, None)
    reaches = 0
    for start, end in find_sentence_spans(text):
        while place is not None and place[0] < end:
            reaches = max(reaches, place[1])
            place = next(places, None)
        if reaches > start:
            yield start, end


def _find_secrets(text: str) -> Iterator[tuple[int, int]]:
    yield from _find_private_keys(text)
    for pattern, is_one in SECRET_PATTERNS:
        yield from (found.span() for found in pattern.finditer(text) if is_one(found))


def _find_private_keys(text: str) -> Iterator[tuple[int, int]]:
    start = text.find(_BEGIN)
    while start >= 0:
        end = text.find(_END, start)
        if "PRIVATE" in text[start : start + 60]:
            yield start, len(text) if end < 0 else end + len(_END)
        start = text.find(_BEGIN, end) if end >= 0 else -1


def _strip_quotes(value: str) -> str:
    return value.strip(_QUOTES).rstrip(".,;:!?").strip(_QUOTES)


def _is_secret_value(value: str, *, is_followed: bool) -> bool:
    """Whether what follows "the password is" is one: something with figures or signs, or a word that ends it."""
    bare = _strip_quotes(value)
    if not bare or bare.lower() in NOT_A_SECRET_WORDS:
        return False
    is_quoted = value[0] in _QUOTES
    ends = not is_followed or value[-1] in ".,;!?"
    return is_quoted or _is_mixed(bare) or ends


def _is_mixed(value: str) -> bool:
    """Whether a word has figures, or signs that no word has."""
    return len(value) >= 4 and (_DIGIT.search(value) is not None or re.search(r"[^\w'’.,/-]", value) is not None)


def _is_token(value: str) -> bool:
    bare = _strip_quotes(value)
    letters = sum(map(str.isalpha, bare))
    figures = sum(map(str.isdigit, bare))
    has_figures = figures >= 2 or (figures == 1 and len(bare) >= 16)
    return len(bare) >= 8 and has_figures and letters >= 2 and "://" not in bare and not bare.startswith("/")


def _is_random(value: str) -> bool:
    """Whether capitals, small letters and figures are mixed as in no name and no hash."""
    figures = len(_DIGIT.findall(value))
    return figures >= 3 and all(len(kind.findall(value)) >= 3 for kind in (_UPPER, _LOWER))


def _is_card(value: str) -> bool:
    digits = [int(character) for character in value if character.isdigit()]
    if len(set(digits)) == 1:
        return False
    doubled = [digit if place % 2 == 0 else sum(divmod(2 * digit, 10)) for place, digit in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0


SECRET_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], bool]], ...] = (
    (_KNOWN_KEY, lambda found: True),
    (_LONG, lambda found: _is_random(found.group())),
    (_CARD, lambda found: _is_card(found.group())),
    (_SAID, lambda found: _is_secret_value(found["value"], is_followed=bool(found["rest"].strip()))),
    (_KEYED, lambda found: _is_token(found["value"])),
    (_DIRECT, lambda found: bool(found["figures"]) or _is_mixed(_strip_quotes(found["value"]))),
)
"""How a secret is written, and what tells it from something else that is written so."""
