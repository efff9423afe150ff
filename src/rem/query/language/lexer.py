"""Lexer: reads a query from left to right, a piece at a time. What a piece is depends on where it stands."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from rem.query.language.syntax_errors import Fix, ParseError

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
            raise ParseError(unstorable.start(), f"The character {code} cannot stand in a query: remove it", fix)

    def skip_spaces(self) -> str:
        """Go past spaces; the character that comes then, or nothing at the end."""
        found = _NO_SPACE.search(self.text, self.at, self.end)
        if found is None:
            self.at = self.end
            return ""
        self.at = found.start()
        return found[0]

    def peek_keyword(self, at: int) -> str:
        """What stands at a place, in capitals, if a keyword can be written like that."""
        found = _KEYWORD.match(self.text, at, self.end)
        return found[0].upper() if found else ""

    def skip_assignment(self) -> None:
        """Go past the `=` that may stand between a clause and its value."""
        found = _ASSIGNMENT.match(self.text, self.at, self.end)
        if found:
            self.at = found.end()
        self.skip_spaces()

    def read_word(self) -> str:
        """Read what comes before the next space, comma or bracket."""
        found = _WORD.match(self.text, self.at, self.end)
        if found is None:
            return ""
        self.at = found.end()
        return found[0]

    def read_string(self) -> str:
        """Read a quoted string."""
        quote = self.text[self.at]
        found = _STRINGS[quote].match(self.text, self.at, self.end)
        if found is None:
            name = "double" if quote == '"' else "single"
            hint = f": it needs a {name} quote at its end" + (
                " (a backslash before a quote makes it part of the string)" if "\\" in self.text[self.at :] else ""
            )
            raise ParseError(self.at, f"Unclosed string{hint}", Fix(self.end, self.end, quote))
        self.at = found.end()
        return unescape(found[1])


def unescape(raw: str) -> str:
    """What stands between quotes, without the backslashes that protect quotes and backslashes."""
    return _ESCAPE.sub(r"\1", raw) if "\\" in raw else raw


def offset_in_raw(raw: str, place: int) -> int:
    """The place in a string as it was written, of a place in what it stands for."""
    removed = 0
    for escape in _ESCAPE.finditer(raw):
        if escape.start() - removed >= place:
            break
        removed += 1
    return place + removed


_TOKEN = re.compile(
    r"\s*+(?:(?P<word>[^\W\d]\w*+(?:\.[\w-]++)*+)"
    r"|(?P<number>[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<string>'(?:[^'\\]++|\\.|'')*+'|\"(?:[^\"\\]++|\\.|\"\")*+\")"
    r"|(?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|\[|\]|,|;)"
    r"|(?P<other>\S))",
    re.DOTALL,
)
MAX_CONDITION_DEPTH = 50
_OPENING = {")": "(", "]": "["}


class ConditionToken(NamedTuple):
    """A piece of a condition. `text` is what it is compared by: words in capitals, everything else as written."""

    kind: str
    text: str
    start: int
    end: int


class ConditionTokens(NamedTuple):
    """The pieces of a condition, closed by one of the kind `end`, and where the text goes on."""

    items: list[ConditionToken]
    end: int


def tokenize_condition(text: str, start: int, end: int, stops: Collection[str] = ()) -> ConditionTokens:
    """Cut a condition into its pieces, up to a stop word or a closing bracket that belong to what is around it."""
    items: list[ConditionToken] = []
    opened: list[ConditionToken] = []
    at = start
    while found := _TOKEN.match(text, at, end):
        kind = found.lastgroup or ""
        token = _token(kind, found)
        if kind == "word" and not opened and token.text in stops:
            break
        if kind == "sign" and token.text in ")];" and not opened:
            break
        if kind == "sign":
            _balance(opened, token)
        elif kind == "other" and token.text in "\"'":
            raise ParseError(token.start, "Unclosed string in the condition", Fix(end, end, token.text))
        items.append(token)
        at = token.end
    if opened:
        opening = opened[-1]
        closing = ")" if opening.text == "(" else "]"
        message = f"Unclosed '{opening.text}' in the condition: it needs a '{closing}'"
        raise ParseError(opening.start, message, Fix(at, at, closing))
    items.append(ConditionToken("end", "", at, at))
    return ConditionTokens(items, at)


def _token(kind: str, found: re.Match[str]) -> ConditionToken:
    written = found[kind]
    return ConditionToken(kind, written.upper() if kind == "word" else written, found.end() - len(written), found.end())


def _balance(opened: list[ConditionToken], token: ConditionToken) -> None:
    if token.text in "([":
        opened.append(token)
        check_depth(len(opened), token)
    elif token.text in ")]":
        if opened[-1].text != _OPENING[token.text]:
            raise ParseError(token.start, f"'{token.text}' does not close the '{opened[-1].text}' before it")
        opened.pop()


def check_depth(depth: int, token: ConditionToken) -> None:
    """A condition nested too deeply is an error, so that whoever walks through it need not fear for the stack."""
    if depth > MAX_CONDITION_DEPTH:
        raise ParseError(
            token.start, f"The condition is nested more than {MAX_CONDITION_DEPTH} levels deep: write it flatter"
        )
