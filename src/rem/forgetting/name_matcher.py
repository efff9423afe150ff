"""Names: under which names something is known, and whether a text mentions one of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from rem.errors import InvalidInputError

_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
_SEPARATORS = re.compile(r"[\s_-]+")
_ADDRESS = re.compile(r"[^\s@]+@[^\s@]+\Z|[^\W\d_][\w+.-]*://")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Scripts that write words without spaces between them: there a name may stand right beside other letters."""
_LETTER = "[^\\W_]|[\u0300-\u036f]"
EXCERPT_CONTEXT_CHARS = 60


class NameMatcher:
    """The names of one thing. They are compared as whole words, in any case and spelling of Unicode."""

    def __init__(self, names: Sequence[str]) -> None:
        self.all = tuple(dict.fromkeys(name.strip() for name in names if _strip_separators(name)))
        if not self.all:
            raise InvalidInputError("Say what is to be forgotten: a name or a key.")
        self._spellings = {_strip_separators(name) for name in self.all}
        longest_first = sorted({fold_text(name) for name in self.all}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_build_pattern, longest_first)))

    def matches(self, text: str) -> bool:
        """Whether a text is one of the names, and nothing else."""
        return _strip_separators(text) in self._spellings

    def occurs_in(self, text: str) -> bool:
        """Whether a text mentions one of the names."""
        return self._pattern.search(fold_text(text)) is not None

    def occurs_in_json(self, value: Any) -> bool:
        """Whether a text inside a JSON value, or the name of a field in it, mentions one of the names."""
        return any(self.occurs_in(text) for text in iterate_texts(value))

    def excerpt(self, value: Any) -> str:
        """What stands around the first mention in a JSON value."""
        for text in iterate_texts(value):
            plain = " ".join(_INVISIBLE.sub("", text).split())
            found = self._pattern.search(fold_text(plain))
            if found is None:
                continue
            # Folding may change the length of a text a little: the excerpt is for people.
            start = max(0, found.start() - EXCERPT_CONTEXT_CHARS)
            end = found.end() + EXCERPT_CONTEXT_CHARS
            return ("… " if start else "") + plain[start:end] + (" …" if end < len(plain) else "")
        return ""


def fold_text(text: str) -> str:
    """The text in one spelling, without capitals."""
    if text.isascii():
        return text.lower().strip()
    plain = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).casefold()
    return unicodedata.normalize("NFKC", plain).strip()


def iterate_texts(value: Any) -> Iterator[str]:
    """All texts in a JSON value, the names of fields among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from iterate_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from iterate_texts(inner)


def _strip_separators(text: str) -> str:
    """What spellings of a name have in common: Sarah Chen, sarah-chen, SarahChen."""
    return _SEPARATORS.sub("", fold_text(text))


def _build_pattern(name: str) -> str:
    if _ADDRESS.match(name):
        # a.b@example.com is not b@example.com, and example.com.au is not example.com.
        return rf"(?<![\w.+-]){re.escape(name)}(?!\.?(?:{_LETTER}))(?!-\w)"
    words = [re.escape(word) for word in _SEPARATORS.split(name) if word]
    before = "" if _UNSPACED.match(words[0][0]) else "(?<![^\\W_])"
    after = "" if _UNSPACED.match(words[-1][-1]) else f"(?!{_LETTER})"
    return before + r"[\s_-]*".join(words) + after
