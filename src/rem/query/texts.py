"""Keys and texts: in quotes, or as plain words up to the next clause; several keys with commas or as a list."""

from __future__ import annotations

import re
from functools import lru_cache

from rem.query.frame import Frame, Text
from rem.query.grammar import CLAUSE_WORDS, VERBS, Clause
from rem.query.lexer import Lexer
from rem.query.problems import Fix, Problem, shown
from rem.query.suggestions import in_quotes, nearest
from rem.query.values import missing

_QUOTES = ('"', "'")
_PIECE = re.compile(r"[^\s,()]+|[,()]")
_LIST_ITEM = re.compile(r"[^,\[\]]+")
_NAMED = re.compile(r"([A-Za-z_]{3,20})=([\"']?)")


def read_text(lexer: Lexer, frame: Frame) -> Text:
    """Read the text of FUZZY and SEARCH."""
    start = lexer.at
    if lexer.text[start] in _QUOTES:
        return Text((_string(lexer, frame),), start, start, lexer.at, quoted=True)
    item = _words(lexer, frame, commas_end=False)
    return Text((item,) if item else (), start, start, lexer.at, quoted=False, spaced=" " in item)


def read_keys(lexer: Lexer, frame: Frame) -> Text:
    """Read one key or several; no items if none stands here."""
    start = lexer.at
    if lexer.text[start : start + 1] == "[":
        items = read_list(lexer, "key")
        return Text(tuple(items), start, start, lexer.at, quoted=True)
    keys: list[str] = []
    spaced = False
    while True:
        is_string = lexer.skip() in _QUOTES
        last = lexer.at
        key = _string(lexer, frame) if is_string else _words(lexer, frame, commas_end=True)
        if not key and not keys and lexer.text[lexer.at : lexer.at + 1] != ",":
            return Text((), start, start, start, quoted=False)
        if not key:
            raise _no_item(lexer, "key", after_comma=bool(keys))
        keys.append(key)
        spaced = spaced or (not is_string and " " in key)
        end = lexer.at
        if lexer.skip() != ",":
            return Text(tuple(keys), start, last, end, is_string, spaced)
        lexer.at += 1


def read_types(lexer: Lexer, clause: Clause) -> tuple[str, ...]:
    """Read edge types: strings or single words with commas between them, or a list."""
    if lexer.text[lexer.at : lexer.at + 1] == "[":
        return tuple(read_list(lexer, "edge type"))
    types: list[str] = []
    while True:
        is_string = lexer.skip() in _QUOTES
        start = lexer.at
        name = lexer.string() if is_string else lexer.word()
        if not name.strip() or (not is_string and name.upper() in CLAUSE_WORDS):
            if not types or is_string:
                raise missing(lexer, clause, start, "manages")
            raise _no_item(lexer, "edge type", after_comma=True)
        types.append(name)
        end = lexer.at
        if lexer.skip() != ",":
            lexer.at = end
            return tuple(types)
        lexer.at += 1


def read_list(lexer: Lexer, what: str) -> list[str]:
    """Read `[a, "b"]`."""
    opening = lexer.at
    items: list[str] = []
    while True:
        lexer.at += 1
        items.append(_list_item(lexer, opening, what))
        follower = lexer.skip()
        if follower == "]":
            lexer.at += 1
            return items
        if not follower:
            raise Problem(opening, "Unclosed '[': it needs a ']'", Fix(lexer.end, lexer.end, "]"))
        if follower != ",":
            raise Problem(lexer.at, f"Expected ',' or ']' in the list, not {shown(lexer.word() or follower)}")


def _list_item(lexer: Lexer, opening: int, what: str) -> str:
    if lexer.skip() in _QUOTES:
        start = lexer.at
        item = lexer.string()
        if not item.strip():
            raise Problem(start, f"The list needs at least one {what} in every place, not an empty string")
        return item
    found = _LIST_ITEM.match(lexer.text, lexer.at, lexer.end)
    if found is None or not found[0].strip():
        raise _no_item(lexer, what, after_comma=lexer.text[opening + 1 : lexer.at].strip() != "")
    lexer.at = found.end()
    return " ".join(found[0].split())


def _no_item(lexer: Lexer, what: str, *, after_comma: bool) -> Problem:
    if not after_comma:
        return Problem(lexer.at, f"There must be at least one {what} here")
    comma = lexer.text.rfind(",", 0, lexer.at)
    return Problem(lexer.at, f"Expected another {what} after the comma", Fix(comma, comma + 1, ""))


def _string(lexer: Lexer, frame: Frame) -> str:
    start = lexer.at
    value = lexer.string()
    if not value.strip():
        fix = Fix(start, lexer.at, frame.verb.example)
        raise Problem(start, f"{frame.verb.name} needs {frame.verb.missing}, not an empty string", fix)
    return value


def _words(lexer: Lexer, frame: Frame, *, commas_end: bool) -> str:
    start = lexer.at
    lexer.at = run_end(lexer, frame, start, commas_end=commas_end)
    return " ".join(lexer.text[start : lexer.at].split())


def run_end(lexer: Lexer, frame: Frame, start: int, *, commas_end: bool, own_only: bool = False) -> int:
    """Where plain words end: before a clause, a string, a bracket that nothing opened or, between keys, a comma.

    `own_only`: a proposal is looked for, so the clauses of other verbs are words, and nothing is wrong.
    """
    text = lexer.text
    end = start
    opened: list[int] = []
    for piece in _PIECE.finditer(text, start, lexer.end):
        at = piece.start()
        word = piece[0]
        if word == "(":
            opened.append(at)
        elif word == ")":
            if not opened:
                break
            opened.pop()
        elif not opened and (
            (word == "," and commas_end)
            or ((at == end == start or text[at - 1].isspace()) and _ends_run(lexer, frame, at, word, own_only))
            or (word.upper() in VERBS and text[end - 1 : end] == ";")
        ):
            break
        end = piece.end()
    if opened and not own_only:
        fix = Fix(start, lexer.end, in_quotes(text[start : lexer.end]))
        raise Problem(opened[-1], "Unclosed '(': close it, or put the text in quotes", fix)
    return end


def _ends_run(lexer: Lexer, frame: Frame, at: int, word: str, own_only: bool) -> bool:
    if word[0] in _QUOTES:
        return True
    keyword = lexer.keyword(at)
    if keyword in CLAUSE_WORDS:
        return frame.owner(keyword) is not None or (not own_only and means_clause(lexer, frame, at, keyword))
    return "=" in word and _is_misspelt_clause(word)


def means_clause(lexer: Lexer, frame: Frame, at: int, keyword: str) -> bool:
    """Whether a keyword that the verb does not have is meant as one all the same.

    In a key it always is, so that a mistake does not look like a key that nothing has. A text is language, where such a
    word is a word, unless it is written as a clause would be.
    """
    end = at + len(keyword)
    return frame.verb.takes_keys or lexer.text[at:end].isupper() or lexer.text[end : end + 1] == "="


def _is_misspelt_clause(word: str) -> bool:
    """Whether `name=value` has a name that is no clause but nearly one, or a value that is a string."""
    named = _NAMED.match(word)
    return named is not None and (bool(named[2]) or _is_nearly_clause(named[1].upper()))


@lru_cache(maxsize=1024)
def _is_nearly_clause(name: str) -> bool:
    return nearest(name, (word for word in CLAUSE_WORDS if word[0] == name[0])) is not None
