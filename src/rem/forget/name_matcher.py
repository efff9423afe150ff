"""Compare texts with the names of one person or thing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from rem.errors import InvalidInputError

_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
_SEPARATORS = re.compile(r"[\s_-]+")
_ADDRESS = re.compile(r"\A(?:[^\s@]+@[^\s@]+\Z|[^\W\d_][\w+.-]*://)")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Scripts without spaces between words. There, letters may directly precede or follow a name."""
_LETTER = "[^\\W_]|[\u0300-\u036f]"
EXCERPT_CONTEXT_CHARS = 60


class NameMatcher:
    """The names of one person or thing, compared as whole words in any case and Unicode spelling."""

    def __init__(self, names: Sequence[str]) -> None:
        self.all = tuple(dict.fromkeys(name.strip() for name in names if _strip_separators(name)))
        if not self.all:
            raise InvalidInputError("Give a name or a key to forget.")
        self._spellings = {_strip_separators(name) for name in self.all}
        longest_first = sorted({fold_text(name) for name in self.all}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_build_pattern, longest_first)))

    def matches(self, text: str) -> bool:
        """Return whether the whole text is one of the names."""
        return _strip_separators(text) in self._spellings

    def occurs_in(self, text: str) -> bool:
        """Return whether the text mentions one of the names."""
        return self._pattern.search(fold_text(text)) is not None

    def occurs_in_json(self, value: Any) -> bool:
        """Return whether a string or a field name inside a JSON value mentions one of the names."""
        return any(self.occurs_in(text) for text in iterate_texts(value))

    def excerpt(self, value: Any) -> str:
        """Return the text around the first mention in a JSON value; empty without a mention."""
        for text in iterate_texts(value):
            plain = " ".join(_INVISIBLE.sub("", text).split())
            match = self._pattern.search(fold_text(plain))
            if match is None:
                continue
            # Folding can shift offsets by a few characters. That is fine, because only people read the excerpt.
            start = max(0, match.start() - EXCERPT_CONTEXT_CHARS)
            end = match.end() + EXCERPT_CONTEXT_CHARS
            return ("… " if start else "") + plain[start:end] + (" …" if end < len(plain) else "")
        return ""


def fold_text(text: str) -> str:
    """Return the text in lower case and normalized Unicode (NFKC), without invisible characters."""
    if text.isascii():
        return text.lower().strip()
    plain = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).casefold()
    return unicodedata.normalize("NFKC", plain).strip()


def iterate_texts(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value, including field names."""
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
    """Return the form that all spellings of a name share: Sarah Chen, sarah-chen, SarahChen."""
    return _SEPARATORS.sub("", fold_text(text))


def _build_pattern(name: str) -> str:
    if _ADDRESS.match(name):
        # b@example.com does not match inside a.b@example.com, nor example.com inside example.com.au.
        return rf"(?<![\w.+-]){re.escape(name)}(?!\.?(?:{_LETTER}))(?!-\w)"
    words = [re.escape(word) for word in _SEPARATORS.split(name) if word]
    before = "" if _UNSPACED.match(words[0][0]) else "(?<![^\\W_])"
    after = "" if _UNSPACED.match(words[-1][-1]) else f"(?!{_LETTER})"
    return before + r"[\s_-]*".join(words) + after
