"""Split queries and WHERE conditions into words, strings, numbers and signs."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from rem.query.grammar import MAX_CONDITION_TOKENS
from rem.query.syntax_errors import Fix, ParseError
from rem.text import UNSTORABLE_CHARACTER

QUOTES = ('"', "'")
MAX_CONDITION_DEPTH = 50
"""No sensible condition is nested deeper, and recursive functions over it stay far from Python's stack limit."""

_NO_SPACE = re.compile(r"\S")
_WORD = re.compile(r"[^\s,()\[\]]+")
_match_keyword = re.compile(r"[A-Za-z_]+(?=[\s=(),\[\"]|\Z)").match
_ASSIGNMENT = re.compile(r"\s*=?")
_MATCH_STRING = {
    '"': re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL).match,
    "'": re.compile(r"'((?:[^'\\]++|\\.)*+)'", re.DOTALL).match,
}
_ESCAPE = re.compile(r"\\([\\\"'])")
_match_condition_token = re.compile(
    r"\s*+(?:(?P<word>[^\W\d]\w*+(?:\.[\w-]++)*+)"
    r"|(?P<number>[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<string>'(?:[^'\\]++|\\.|'')*+'|\"(?:[^\"\\]++|\\.|\"\")*+\")"
    r"|(?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|\[|\]|,|;)"
    r"|(?P<other>\S))",
    re.DOTALL,
).match
_OPENING_BRACKETS = {")": "(", "]": "["}


class Lexer:
    """The text of a query, and the position up to which it has been read.

    The parser asks for the kind of token that it expects: the same characters are a keyword, a key or a number,
    depending on their position in the query.
    """

    __slots__ = ("end", "position", "text")

    def __init__(self, text: str) -> None:
        """Start at the first character. Raise ParseError if the text has a character that cannot be stored."""
        self.text = text
        self.position = 0
        self.end = len(text)
        unstorable = UNSTORABLE_CHARACTER.search(text)
        if unstorable:
            code = f"U+{ord(unstorable[0]):04X}"
            fix = Fix(0, len(text), UNSTORABLE_CHARACTER.sub("", text))
            raise ParseError(unstorable.start(), f"The character {code} cannot stand in a query: remove it", fix)

    def skip_spaces(self) -> str:
        """Move to the next character that is not a space, and return it. Return "" at the end."""
        match = _NO_SPACE.search(self.text, self.position, self.end)
        if match is None:
            self.position = self.end
            return ""
        self.position = match.start()
        return match[0]

    def is_at_quote(self) -> bool:
        """Return whether a quoted string starts here."""
        return self.text[self.position : self.position + 1] in QUOTES

    def peek_keyword(self, offset: int) -> str:
        """Return the word at an offset in capitals, if it can be a keyword; else ""."""
        match = _match_keyword(self.text, offset, self.end)
        return match[0].upper() if match else ""

    def skip_assignment(self) -> None:
        """Skip the optional `=` between a clause and its value, and the spaces around it."""
        match = _ASSIGNMENT.match(self.text, self.position, self.end)
        if match:
            self.position = match.end()
        self.skip_spaces()

    def read_word(self) -> str:
        """Read up to the next space, comma or bracket."""
        match = _WORD.match(self.text, self.position, self.end)
        if match is None:
            return ""
        self.position = match.end()
        return match[0]

    def read_string(self) -> str:
        """Read a quoted string, and return it without quotes and escapes."""
        quote = self.text[self.position]
        match = _MATCH_STRING[quote](self.text, self.position, self.end)
        if match is None:
            name = "double" if quote == '"' else "single"
            has_backslash = "\\" in self.text[self.position :]
            hint = " (a backslash before a quote makes it part of the string)" if has_backslash else ""
            message = f"Unclosed string: it needs a {name} quote at its end{hint}"
            raise ParseError(self.position, message, Fix(self.end, self.end, quote))
        self.position = match.end()
        return _ESCAPE.sub(r"\1", match[1]) if "\\" in match[1] else match[1]


def offset_in_raw(raw: str, offset: int) -> int:
    """Translate an offset in an unescaped string into the offset in the string as written."""
    removed = 0
    for escape in _ESCAPE.finditer(raw):
        if escape.start() - removed >= offset:
            break
        removed += 1
    return offset + removed


class ConditionToken(NamedTuple):
    """A token of a condition. `text` is in capitals for words, and as written for everything else."""

    kind: str
    """word, number, string, sign, other or end."""
    text: str
    start: int
    end: int


class ConditionTokens(NamedTuple):
    """The tokens of a condition, closed by a token of the kind `end`, and the offset where the condition ends."""

    items: list[ConditionToken]
    end: int


def tokenize_condition(text: str, start: int, end: int, stop_words: Collection[str] = ()) -> ConditionTokens:
    """Split a condition into tokens, up to a stop word, or a closing bracket or semicolon outside of brackets."""
    items: list[ConditionToken] = []
    open_brackets: list[ConditionToken] = []
    offset = start
    while match := _match_condition_token(text, offset, end):
        kind = match.lastgroup or ""
        token = _make_token(kind, match)
        if kind == "word" and not open_brackets and token.text in stop_words:
            break
        if kind == "sign" and token.text in ")];" and not open_brackets:
            break
        if kind == "sign":
            _track_bracket(open_brackets, token)
        elif kind == "other" and token.text in "\"'":
            raise ParseError(token.start, "Unclosed string in the condition", Fix(end, end, token.text))
        if len(items) >= MAX_CONDITION_TOKENS:
            message = (
                f"A condition has at most {MAX_CONDITION_TOKENS:,} words, values and signs: ask in several queries"
            )
            raise ParseError(token.start, message)
        items.append(token)
        offset = token.end
    if open_brackets:
        opening = open_brackets[-1]
        closing = ")" if opening.text == "(" else "]"
        message = f"Unclosed '{opening.text}' in the condition: it needs a '{closing}'"
        raise ParseError(opening.start, message, Fix(offset, offset, closing))
    items.append(ConditionToken("end", "", offset, offset))
    return ConditionTokens(items, offset)


def _make_token(kind: str, match: re.Match[str]) -> ConditionToken:
    written = match[kind]
    text = written.upper() if kind == "word" else written
    return ConditionToken(kind, text, match.end() - len(written), match.end())


def _track_bracket(open_brackets: list[ConditionToken], token: ConditionToken) -> None:
    if token.text in "([":
        open_brackets.append(token)
        check_condition_depth(len(open_brackets), token)
    elif token.text in ")]":
        if open_brackets[-1].text != _OPENING_BRACKETS[token.text]:
            raise ParseError(token.start, f"'{token.text}' does not close the '{open_brackets[-1].text}' before it")
        open_brackets.pop()


def check_condition_depth(depth: int, token: ConditionToken) -> None:
    """Raise ParseError if a condition is nested too deeply."""
    if depth > MAX_CONDITION_DEPTH:
        message = f"The condition is nested more than {MAX_CONDITION_DEPTH} levels deep: write it flatter"
        raise ParseError(token.start, message)
