"""From what was read for a verb to its tree."""

from __future__ import annotations

from typing import Any

from rem.query.frame import Frame, Text
from rem.query.grammar import TYPE
from rem.query.lexer import Lexer
from rem.query.mistakes import given_twice
from rem.query.problems import Fix, Problem
from rem.query.suggestions import in_quotes
from rem.query.tree import Fuzzy, Lookup, Query, Search, Sql, Traverse


def build(lexer: Lexer, frame: Frame) -> Query:
    """The tree of a query that has been read to its end."""
    match frame.verb.name:
        case "LOOKUP":
            return Lookup(_items(lexer, frame), **frame.values)
        case "FUZZY":
            return Fuzzy(_items(lexer, frame)[0], **frame.values)
        case "SEARCH":
            return Search(_items(lexer, frame)[0], **frame.values)
        case "TRAVERSE":
            return _traverse(lexer, frame)
    return Sql(_select(lexer, frame))


def _items(lexer: Lexer, frame: Frame) -> tuple[str, ...]:
    if frame.text is None:
        name, example = frame.verb.name, frame.verb.example
        after = frame.at + len(name)
        raise Problem(frame.at, f"{name} needs {frame.verb.missing}", Fix(after, after, f" {example}"))
    return frame.text.items


def _traverse(lexer: Lexer, frame: Frame) -> Traverse:
    values: dict[str, Any] = dict(frame.values)
    if "start" not in values:
        return Traverse(Lookup(_items(lexer, frame)), **values)
    start = values.pop("start")
    if frame.text is not None:
        values["edge_types"] = _leading_types(lexer, frame, frame.text)
    return Traverse(build(lexer, start) if isinstance(start, Frame) else start, **values)


def _leading_types(lexer: Lexer, frame: Frame, text: Text) -> tuple[str, ...]:
    """What stands before FROM or WITH are edge types."""
    word, place = frame.places["start"]
    if text.start > place:
        fix = Fix(text.start, text.start, "TYPE ")
        raise Problem(text.start, f"{word} already says where to start: edge types come after TYPE", fix)
    if "edge_types" in frame.values:
        lexer.at = text.end
        raise given_twice(lexer, TYPE, " ".join(text.items), text.start, "TYPE")
    if text.spaced:
        written = lexer.text[text.start : text.end]
        message = f"Edge types before {word} are single words with commas between them, or strings in quotes"
        raise Problem(text.start, message, Fix(text.start, text.end, in_quotes(" ".join(written.split()))))
    return text.items


def _select(lexer: Lexer, frame: Frame) -> str:
    """The SELECT that `SQL table …` means."""
    values = frame.values
    if frame.text is not None and "table" in values:
        word, place = frame.places["table"]
        raise Problem(max(place, frame.text.start), f"The table is given twice, once after {word}")
    table = values.get("table") or _items(lexer, frame)[0]
    parts = [f"SELECT * FROM {table}"]  # noqa: S608  # runs as the SQL that the user may write anyway
    for name, keyword in (("where", "WHERE"), ("order_by", "ORDER BY"), ("limit", "LIMIT")):
        if name in values:
            parts.append(f"{keyword} {values[name]}")
    return " ".join(parts)
