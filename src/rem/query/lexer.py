"""Lexer: reads a query from left to right, a piece at a time. What a piece is depends on where it stands."""

from __future__ import annotations

import re

from rem.query.problems import Fix, Problem

_NO_SPACE = re.compile(r"\S")
_WORD = re.compile(r"[^\s,()\[\]]+")
_KEYWORD = re.compile(r"[A-Za-z_]+(?=[\s=(),\[\"]|\Z)")
_ASSIGNMENT = re.compile(r"\s*=?")
_STRINGS = {
    '"': re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL),
    "'": re.compile(r"'((?:[^'\\]++|\\.)*+)'", re.DOTALL),
}
_ESCAPE = re.compile(r"\\([\\\"'])")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Lexer:
    """A query, and how far it has been read."""

    __slots__ = ("at", "end", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.end = len(text)
        unstorable = _UNSTORABLE.search(text)
        if unstorable:
            code = f"U+{ord(unstorable[0]):04X}"
            fix = Fix(0, len(text), _UNSTORABLE.sub("", text))
            raise Problem(unstorable.start(), f"The character {code} cannot stand in a query: remove it", fix)

    def skip(self) -> str:
        """Go past spaces; the character that comes then, or nothing at the end."""
        found = _NO_SPACE.search(self.text, self.at, self.end)
        if found is None:
            self.at = self.end
            return ""
        self.at = found.start()
        return found[0]

    def keyword(self, at: int) -> str:
        """What stands at a place, in capitals, if a keyword can be written like that."""
        found = _KEYWORD.match(self.text, at, self.end)
        return found[0].upper() if found else ""

    def take_assignment(self) -> None:
        """Go past the `=` that may stand between a clause and its value."""
        found = _ASSIGNMENT.match(self.text, self.at, self.end)
        if found:
            self.at = found.end()
        self.skip()

    def word(self) -> str:
        """Read what comes before the next space, comma or bracket."""
        found = _WORD.match(self.text, self.at, self.end)
        if found is None:
            return ""
        self.at = found.end()
        return found[0]

    def string(self) -> str:
        """Read a quoted string."""
        quote = self.text[self.at]
        found = _STRINGS[quote].match(self.text, self.at, self.end)
        if found is None:
            name = "double" if quote == '"' else "single"
            hint = f": it needs a {name} quote at its end" + (
                " (a backslash before a quote makes it part of the string)" if "\\" in self.text[self.at :] else ""
            )
            raise Problem(self.at, f"Unclosed string{hint}", Fix(self.end, self.end, quote))
        self.at = found.end()
        return unescaped(found[1])


def unescaped(raw: str) -> str:
    """What stands between quotes, without the backslashes that protect quotes and backslashes."""
    return _ESCAPE.sub(r"\1", raw) if "\\" in raw else raw


def place_in_raw(raw: str, place: int) -> int:
    """The place in a string as it was written, of a place in what it stands for."""
    removed = 0
    for escape in _ESCAPE.finditer(raw):
        if escape.start() - removed >= place:
            break
        removed += 1
    return place + removed
