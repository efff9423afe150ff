"""The words, values and signs of a WHERE, and where it ends when it is not in quotes."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from rem.query.problems import Fix, Problem

_TOKEN = re.compile(
    r"\s*+(?:(?P<word>[^\W\d]\w*+(?:\.[\w-]++)*+)"
    r"|(?P<number>[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<string>'(?:[^'\\]++|\\.|'')*+'|\"(?:[^\"\\]++|\\.|\"\")*+\")"
    r"|(?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|\[|\]|,|;)"
    r"|(?P<other>\S))",
    re.DOTALL,
)
DEEPEST = 50
_OPENING = {")": "(", "]": "["}


class Token(NamedTuple):
    """A piece of a condition. `text` is what it is compared by: words in capitals, everything else as written."""

    kind: str
    text: str
    start: int
    end: int


class Tokens(NamedTuple):
    """The pieces of a condition, closed by one of the kind `end`, and where the text goes on."""

    items: list[Token]
    end: int


def tokens_of(text: str, start: int, end: int, stops: Collection[str] = ()) -> Tokens:
    """Cut a condition into its pieces, up to a stop word or a closing bracket that belong to what is around it."""
    items: list[Token] = []
    opened: list[Token] = []
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
            raise Problem(token.start, "Unclosed string in the condition", Fix(end, end, token.text))
        items.append(token)
        at = token.end
    if opened:
        opening = opened[-1]
        closing = ")" if opening.text == "(" else "]"
        message = f"Unclosed '{opening.text}' in the condition: it needs a '{closing}'"
        raise Problem(opening.start, message, Fix(at, at, closing))
    items.append(Token("end", "", at, at))
    return Tokens(items, at)


def _token(kind: str, found: re.Match[str]) -> Token:
    written = found[kind]
    return Token(kind, written.upper() if kind == "word" else written, found.end() - len(written), found.end())


def _balance(opened: list[Token], token: Token) -> None:
    if token.text in "([":
        opened.append(token)
        refuse_depth(len(opened), token)
    elif token.text in ")]":
        if opened[-1].text != _OPENING[token.text]:
            raise Problem(token.start, f"'{token.text}' does not close the '{opened[-1].text}' before it")
        opened.pop()


def refuse_depth(depth: int, token: Token) -> None:
    """A condition nested too deeply is an error, so that whoever walks through it need not fear for the stack."""
    if depth > DEEPEST:
        raise Problem(token.start, f"The condition is nested more than {DEEPEST} levels deep: write it flatter")
