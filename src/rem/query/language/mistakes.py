"""What to say about a word that cannot stand where it does."""

from __future__ import annotations

from rem.query.language.grammar import VERBS, Clause
from rem.query.language.lexer import Lexer
from rem.query.language.operands import Operand, PartialQuery, find_text_end
from rem.query.language.sql_lexer import NON_SELECT_KEYWORDS
from rem.query.language.syntax_errors import Fix, ParseError, find_nearest, quote, show_word

_STARTS = (*VERBS, "SELECT", "WITH")
_OTHER_NAMES = {("FUZZY", "MIN_SIMILARITY"): "THRESHOLD", ("SEARCH", "THRESHOLD"): "MIN_SIMILARITY"}


def unknown_verb(lexer: Lexer, nested: bool) -> ParseError:
    """The query begins with a word that is no verb."""
    at = lexer.at
    word = lexer.read_word() or lexer.text[at]
    if word.upper().rstrip(";") in NON_SELECT_KEYWORDS:
        message = f"REM's queries are read-only, and {word.upper()} is no query: use LOOKUP, SEARCH or a SELECT"
        return ParseError(at, message)
    near = find_nearest(word, (verb for verb in _STARTS if verb != "WITH"))
    message = f"Unknown verb {show_word(word)}: a query begins with {', '.join(_STARTS[:-1])} or {_STARTS[-1]}"
    if near is not None:
        return ParseError(at, message, Fix(at, lexer.at, near), near)
    lexer.skip_spaces()
    if word.upper() == "REM" and lexer.peek_keyword(lexer.at) in _STARTS:
        return ParseError(at, message, Fix(at, lexer.at, ""))
    verb = "LOOKUP" if lexer.at == lexer.end else "SEARCH"
    fix = None if nested else Fix(at, lexer.end, f"{verb} {quote(' '.join(lexer.text[at : lexer.end].split()))}")
    return ParseError(at, message, fix)


def unknown_start(lexer: Lexer, word: str, clause: Clause) -> ParseError:
    """What stands after WITH is no query."""
    near = find_nearest(word, VERBS) if word else None
    fix = Fix(lexer.at, lexer.at + len(word), near) if near else _other_keyword(lexer, lexer.at, clause, "FROM")
    return ParseError(lexer.at, f"{clause.name} needs {clause.expected}", fix, near)


def query_as_key(lexer: Lexer, start: int, clause: Clause) -> ParseError:
    """What stands after FROM is a query."""
    return ParseError(start, "A query to start from comes after WITH", _other_keyword(lexer, start, clause, "WITH"))


def _other_keyword(lexer: Lexer, value: int, clause: Clause, other: str) -> Fix:
    end = len(lexer.text[:value].rstrip().rstrip("=").rstrip())
    return Fix(end - len(clause.name), end, other)


def foreign_clause(lexer: Lexer, frame: PartialQuery, word: str, loose: Operand | None) -> ParseError:
    """The keyword is a clause of other verbs."""
    at = lexer.at
    after = at + len(word)
    other = _OTHER_NAMES.get((frame.verb.name, word))
    message = f"{frame.verb.name} has no {word}: it takes {_listed(frame)}"
    if other is not None:
        return ParseError(at, message, Fix(at, after, other))
    removal = Fix(len(lexer.text[:at].rstrip()), _clause_end(lexer, frame, after), "")
    if frame.text is None or (frame.text is loose and removal.start <= frame.text.end):
        message += f" ({word.lower()!r} as a word of a key or text needs quotes around it)"
        clear = _is_clause(lexer, word, at, frame.text) and lexer.text[removal.end - 1].isdigit()
        fix = removal if clear else _quoted(lexer, frame, frame.text.last if frame.text else at, after)
        return ParseError(at, message, fix)
    return ParseError(at, message, removal)


def quoted_word(
    lexer: Lexer, frame: PartialQuery, word: str, at: int, loose: Operand | None, fix: Fix | None
) -> Fix | None:
    """The quoted form, if a keyword without a proper value may be a word of the plain text before it; else the fix."""
    if (fix is not None or word == "WHERE") and _is_clause(lexer, word, at, loose):
        return fix
    after = at + len(word)
    if loose is not None and loose.end <= at and not lexer.text[loose.end : at].strip():
        return _quoted(lexer, frame, loose.last, after)
    quoted = _quoted(lexer, frame, at, after)
    return quoted if frame.text is None and quoted.end == lexer.end else fix


def _is_clause(lexer: Lexer, word: str, at: int, loose: Operand | None) -> bool:
    """Whether a keyword is written as a clause, and not as a word among others: `=` behind it, or alone in capitals."""
    after = at + len(word)
    in_capitals = lexer.text[at:after].isupper() and not (loose is not None and " ".join(loose.items).isupper())
    return in_capitals or lexer.text[after : after + 1] == "="


def table_twice(lexer: Lexer, frame: PartialQuery, clause: Clause, word: str, at: int) -> ParseError:
    """A table has been given before; in "what went wrong in June FROM moments" by a word of the text."""
    earlier, earlier_at = frame.places[clause.field]
    problem = given_twice(lexer, clause, word, at, earlier)
    text = frame.text
    if text is not None and not text.quoted and text.end <= earlier_at < at and lexer.text[earlier_at].islower():
        between = lexer.text[text.last : at]
        if not lexer.text[text.end : earlier_at].strip() and '"' not in between:
            problem.fix = Fix(text.last, text.last + len(between.rstrip()), quote(" ".join(between.split())))
    return problem


def given_twice(lexer: Lexer, clause: Clause, word: str, at: int, earlier: str) -> ParseError:
    """The clause has been given before; the lexer is past its value."""
    # How far an inner query without parentheses goes is not known yet.
    is_whole = word != "WITH" or lexer.text[lexer.at - 1] == ")"
    fix = Fix(len(lexer.text[:at].rstrip()), lexer.at, "") if is_whole else None
    if word == earlier:
        return ParseError(at, f"{word} is given twice", fix)
    what = {"start": "where to start", "edge_types": "the edge types"}.get(clause.field, f"the {clause.field}")
    return ParseError(at, f"{word} is too much: {earlier} already says {what}", fix)


def unexpected(lexer: Lexer, frame: PartialQuery, loose: Operand | None) -> ParseError:
    """Something stands behind what could have been the whole query."""
    at, text = lexer.at, lexer.text
    before = len(text[:at].rstrip())
    if text[at] == ";" or text[before - 1] == ";":
        semicolon = at if text[at] == ";" else before - 1
        return ParseError(at, "One query at a time: there is more after the ';'", Fix(semicolon, lexer.end, ""))
    if text[at] in ")]":
        return ParseError(at, f"Unexpected '{text[at]}': nothing was opened that it could close", Fix(at, at + 1, ""))
    if frame.text is not None and frame.text.quoted and at == frame.text.end and text[at] != ",":
        return _stray_quote(lexer, frame.text)
    if text[at] in "\"',":
        return _second_text(lexer, frame)
    return _unexpected_word(lexer, frame, loose)


def _unexpected_word(lexer: Lexer, frame: PartialQuery, loose: Operand | None) -> ParseError:
    at = lexer.at
    word = lexer.read_word() or lexer.text[at]
    name = word.partition("=")[0]
    near = find_nearest(name, frame.clause_words)
    if near is not None or "=" in word:
        fix = Fix(at, at + len(name), near) if near else None
        return ParseError(at, f"Unknown clause {show_word(name)}: {frame.verb.name} takes {_listed(frame)}", fix, near)
    message = f"Unexpected {show_word(word)}: expected {_listed(frame)} or the end of the query"
    if loose is not None:
        message += " (a text with keywords in it needs quotes)"
        return ParseError(at, message, _quoted(lexer, frame, loose.last, at))
    if frame.text is not None and not lexer.text[frame.text.end : at].strip() and len(frame.text.items) == 1:
        end = find_text_end(lexer, frame, at, commas_end=True, own_only=True)
        whole = f"{frame.text.items[0]} {lexer.text[at:end]}"
        return ParseError(at, message, Fix(frame.text.start, end, quote(whole)))
    return ParseError(at, message)


def _second_text(lexer: Lexer, frame: PartialQuery) -> ParseError:
    at = lexer.at
    first = frame.text
    if lexer.text[at] == ",":
        message = f"Unexpected ',': expected {_listed(frame)} or the end of the query"
        return ParseError(at, message, Fix(at, at + 1, "") if not lexer.text[at + 1 : lexer.end].strip() else None)
    lexer.read_string()
    if first is None or first.end > at or lexer.text[first.end : at].strip():
        return ParseError(at, f"Unexpected string: expected {_listed(frame)} or the end of the query")
    if frame.verb.takes_keys and first.quoted:
        return ParseError(at, "Unexpected string: keys have commas between them", Fix(first.end, at, ", "))
    whole = lexer.text[first.start : lexer.at]
    if first.quoted:
        whole = f"{first.items[0]} {lexer.text[at + 1 : lexer.at - 1]}"
    fix = Fix(first.start, lexer.at, quote(whole))
    return ParseError(at, "Unexpected string: a text is either all in quotes or all without", fix)


def _stray_quote(lexer: Lexer, text: Operand) -> ParseError:
    mark = lexer.text[text.start]
    last = lexer.text.rfind(mark, lexer.at, lexer.end)
    fix = Fix(text.start, last + 1, quote(lexer.text[text.start + 1 : last])) if last > 0 else None
    return ParseError(lexer.at, "A quote inside a string needs a backslash before it, or the other quotes around", fix)


def _quoted(lexer: Lexer, frame: PartialQuery, start: int, after: int) -> Fix:
    """The words from a place on, in quotes, up to the next clause behind another place."""
    end = find_text_end(lexer, frame, after, commas_end=frame.verb.takes_keys, own_only=True)
    return Fix(start, end, quote(" ".join(lexer.text[start:end].split())))


def _clause_end(lexer: Lexer, frame: PartialQuery, after: int) -> int:
    lexer.at = after
    lexer.skip_assignment()
    if lexer.text[lexer.at : lexer.at + 1] in ('"', "'"):
        lexer.read_string()
        return lexer.at
    return find_text_end(lexer, frame, lexer.at, commas_end=False, own_only=True)


def _listed(frame: PartialQuery) -> str:
    return ", ".join(word for word in frame.clause_words if word not in ("REL_TYPE", "ORDER_BY"))
