"""Report what is wrong with a query: the position, the reason and the nearest valid query.

`ParseError` is raised inside the parser, and `to_syntax_error` turns it into the error that users see. The functions
`unknown_verb`, `foreign_clause` and so on return the ParseError for one kind of mistake.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from rem.errors import QuerySyntaxError
from rem.query.grammar import CLAUSE_WORDS, FIRST_WORDS, NON_SELECT_KEYWORDS, VERBS, Clause

if TYPE_CHECKING:
    from rem.query.lexer import Lexer
    from rem.query.operands import Operand, PartialQuery

EXCERPT_CHARS = 100
"""How much of a long line an error shows."""
MAX_SUGGESTION_CHARS = 500
MAX_SHOWN_WORD_CHARS = 40
MAX_KEYWORD_CHARS = 24
"""A longer word is no misspelt keyword."""
_CLAUSE_OF_OTHER_VERB = {("FUZZY", "MIN_SIMILARITY"): "THRESHOLD", ("SEARCH", "THRESHOLD"): "MIN_SIMILARITY"}
_VERB_WITH_TEXT = re.compile(r"\A\s*(?:REM\s+)?(SEARCH|FUZZY|LOOKUP)\s+", re.IGNORECASE)
_NO_SPACES = re.compile(r"\S+")


class Fix(NamedTuple):
    """A replacement in the text of a query that may make it valid."""

    start: int
    end: int
    text: str

    def apply_to(self, query: str) -> str:
        """Return the query with the replacement."""
        return query[: self.start] + self.text + query[self.end :]


class ParseError(Exception):
    """A mistake in a query. It becomes a QuerySyntaxError (see `to_syntax_error`)."""

    def __init__(self, position: int, message: str, fix: Fix | None = None, nearest: str | None = None) -> None:
        """Take the offset of the mistake, the reason, and if known a fix and the word that was probably meant."""
        super().__init__(message)
        self.position = position
        self.message = message
        self.fix = fix
        self.nearest = nearest
        self.is_maybe_text = False
        """Whether the clause is in lower case after a verb in capitals, so that it may be a word of the text."""


def to_syntax_error(query: str, error: ParseError, suggestion: str | None) -> QuerySyntaxError:
    """Return the error for users: the reason, an excerpt with a caret under the mistake, and the suggestion."""
    line_start = query.rfind("\n", 0, error.position) + 1
    line = query.count("\n", 0, error.position) + 1
    column = error.position - line_start + 1
    message = f"{error.message} (line {line}, column {column})"
    if query.strip():
        message += f"\n{_excerpt(query, line_start, error.position)}"
    if suggestion is not None and len(suggestion) > MAX_SUGGESTION_CHARS:
        suggestion = None
    if suggestion is not None or error.nearest is not None:
        message += f"\nDid you mean: {suggestion or error.nearest}"
    return QuerySyntaxError(message, reason=error.message, line=line, column=column, suggestion=suggestion)


def show_word(word: str) -> str:
    """Return a word of the query in quotes for an error message. Cut a long word."""
    printable = "".join(map(_make_printable, word[:MAX_SHOWN_WORD_CHARS]))
    return f"'{printable}{'…' if len(word) > MAX_SHOWN_WORD_CHARS else ''}'"


def _excerpt(query: str, line_start: int, position: int) -> str:
    """Return the line with the mistake, or a part of it, above a caret."""
    line_end = query.find("\n", position)
    line_end = len(query) if line_end < 0 else line_end
    first = max(line_start, position - EXCERPT_CHARS // 2)
    last = min(line_end, first + EXCERPT_CHARS)
    before = ("…" if first > line_start else "") + "".join(map(_make_printable, query[first:position]))
    after = "".join(map(_make_printable, query[position:last])) + ("…" if last < line_end else "")
    return f"  {before}{after}".rstrip() + f"\n  {' ' * sum(map(_count_columns, before))}^"


def _make_printable(character: str) -> str:
    if character.isspace():
        return " "
    return character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"


def _count_columns(character: str) -> int:
    """Return how many columns of a terminal a character takes, to put the caret in the right column."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def find_nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that a word is most likely a misspelling of, or None."""
    if len(word) > MAX_KEYWORD_CHARS:
        return None
    by_upper = {choice.upper(): choice for choice in choices}
    # difflib rates two swapped letters in a short word as too different.
    swapped = [choice for choice in by_upper if sorted(choice) == sorted(word.upper())]
    close = swapped or get_close_matches(word.upper(), by_upper, n=1, cutoff=0.75)
    return by_upper[close[0]] if close else None


def find_nearest_number(word: str, low: float, high: float, fallback: float) -> float:
    """Return the number from `low` to `high` that a word comes closest to, or the fallback if it is no number."""
    try:
        number = abs(float(word.rstrip("%,").replace(",", "." if high == 1 else "")))
    except ValueError:
        return fallback
    if not math.isfinite(number):
        return high
    if high == 1 and 10 <= number <= 100:
        number /= 100  # a percentage
    return min(max(number, low), high)


def quote(text: str) -> str:
    """Return the text as a quoted string of the query language."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def quote_query_text(query: str) -> str | None:
    """Put the text of a query in quotes, up to the first clause in capitals.

    Return None if the text contains no keyword in lower case, so that quotes would change nothing.
    """
    start = _VERB_WITH_TEXT.match(query)
    if start is None:
        return None
    verb = VERBS[start[1].upper()]
    end = len(query)
    has_keyword = False
    for word in _NO_SPACES.finditer(query, start.end()):
        name, assignment, _ = word[0].partition("=")
        if name.upper() in CLAUSE_WORDS and (name.isupper() or assignment):
            end = word.start()
            break
        has_keyword = has_keyword or name.upper() in verb.by_word
    text = " ".join(query[start.end() : end].rstrip("; \t\r\n").split())
    if not has_keyword or '"' in text or text.startswith("'") or (verb.takes_keys and "," in text):
        return None
    return f"{query[: start.end()]}{quote(text)} {query[end:]}".strip()


def unknown_verb(lexer: Lexer, *, is_nested: bool) -> ParseError:
    """Return the error for a query that starts with a word that is no verb."""
    start = lexer.position
    word = lexer.read_word() or lexer.text[start]
    if word.upper().rstrip(";") in NON_SELECT_KEYWORDS:
        message = f"REM's queries are read-only, and {word.upper()} is no query: use LOOKUP, SEARCH or a SELECT"
        return ParseError(start, message)
    nearest = find_nearest(word, (verb for verb in FIRST_WORDS if verb != "WITH"))
    verbs = f"{', '.join(FIRST_WORDS[:-1])} or {FIRST_WORDS[-1]}"
    message = f"Unknown verb {show_word(word)}: a query begins with {verbs}"
    if nearest is not None:
        return ParseError(start, message, Fix(start, lexer.position, nearest), nearest)
    lexer.skip_spaces()
    if is_nested:
        return ParseError(start, message)
    verb = "LOOKUP" if lexer.position == lexer.end else "SEARCH"
    text = " ".join(lexer.text[start : lexer.end].split())
    return ParseError(start, message, Fix(start, lexer.end, f"{verb} {quote(text)}"))


def unknown_start(lexer: Lexer, word: str, clause: Clause) -> ParseError:
    """Return the error for a WITH without a query after it."""
    start = lexer.position
    nearest = find_nearest(word, VERBS) if word else None
    fix = Fix(start, start + len(word), nearest) if nearest else _replace_keyword(lexer, start, clause, "FROM")
    return ParseError(start, f"{clause.name} needs {clause.expected}", fix, nearest)


def query_as_key(lexer: Lexer, start: int, clause: Clause) -> ParseError:
    """Return the error for a query after FROM, where a key is expected."""
    return ParseError(start, "A query to start from comes after WITH", _replace_keyword(lexer, start, clause, "WITH"))


def _replace_keyword(lexer: Lexer, value_start: int, clause: Clause, keyword: str) -> Fix:
    end = len(lexer.text[:value_start].rstrip().rstrip("=").rstrip())
    return Fix(end - len(clause.name), end, keyword)


def foreign_clause(lexer: Lexer, partial: PartialQuery, word: str, unquoted: Operand | None) -> ParseError:
    """Return the error for a clause that only other verbs support. `unquoted` is the operand before it, if any."""
    start = lexer.position
    end = start + len(word)
    message = f"{partial.verb.name} has no {word}: it takes {_list_clauses(partial)}"
    own_name = _CLAUSE_OF_OTHER_VERB.get((partial.verb.name, word))
    if own_name is not None:
        return ParseError(start, message, Fix(start, end, own_name))
    operand = partial.operand
    removal = Fix(len(lexer.text[:start].rstrip()), _find_clause_end(lexer, partial, end), "")
    if operand is None or (operand is unquoted and removal.start <= operand.end):
        message += f" ({word.lower()!r} as a word of a key or text needs quotes around it)"
        is_clause = _looks_like_clause(lexer, word, start, operand) and lexer.text[removal.end - 1].isdigit()
        fix = removal if is_clause else _quote_words(lexer, partial, operand.last if operand else start, end)
        return ParseError(start, message, fix)
    return ParseError(start, message, removal)


def fix_keyword_in_text(
    lexer: Lexer, partial: PartialQuery, word: str, start: int, unquoted: Operand | None, fix: Fix | None
) -> Fix | None:
    """Return the fix for a clause without a valid value: quotes if it may be a word of the text, else the given fix."""
    if (fix is not None or word == "WHERE") and _looks_like_clause(lexer, word, start, unquoted):
        return fix
    end = start + len(word)
    if unquoted is not None and unquoted.end <= start and not lexer.text[unquoted.end : start].strip():
        return _quote_words(lexer, partial, unquoted.last, end)
    quoted = _quote_words(lexer, partial, start, end)
    return quoted if partial.operand is None and quoted.end == lexer.end else fix


def _looks_like_clause(lexer: Lexer, word: str, start: int, unquoted: Operand | None) -> bool:
    """Return whether a keyword has a `=` after it, or is in capitals while the text is not."""
    end = start + len(word)
    is_text_in_capitals = unquoted is not None and " ".join(unquoted.items).isupper()
    return (lexer.text[start:end].isupper() and not is_text_in_capitals) or lexer.text[end : end + 1] == "="


def table_twice(lexer: Lexer, partial: PartialQuery, clause: Clause, word: str, start: int) -> ParseError:
    """Return the error for a second table. In "what went wrong in June FROM moments" the first is part of the text."""
    earlier, earlier_start = partial.keywords[clause.field]
    error = given_twice(lexer, clause, word, start, earlier)
    operand = partial.operand
    is_unquoted_text = operand is not None and not operand.is_quoted and operand.end <= earlier_start < start
    if operand is not None and is_unquoted_text and lexer.text[earlier_start].islower():
        text = lexer.text[operand.last : start]
        if not lexer.text[operand.end : earlier_start].strip() and '"' not in text:
            error.fix = Fix(operand.last, operand.last + len(text.rstrip()), quote(" ".join(text.split())))
    return error


def given_twice(lexer: Lexer, clause: Clause, word: str, start: int, earlier: str) -> ParseError:
    """Return the error for a clause that was given before. The lexer must be after its value."""
    # The end of an inner query without parentheses is not known yet.
    is_complete = word != "WITH" or lexer.text[lexer.position - 1] == ")"
    fix = Fix(len(lexer.text[:start].rstrip()), lexer.position, "") if is_complete else None
    if word == earlier:
        return ParseError(start, f"{word} is given twice", fix)
    meaning = {"start": "where to start", "edge_types": "the edge types"}.get(clause.field, f"the {clause.field}")
    return ParseError(start, f"{word} is too much: {earlier} already says {meaning}", fix)


def unexpected(lexer: Lexer, partial: PartialQuery, unquoted: Operand | None) -> ParseError:
    """Return the error for text after a complete query. `unquoted` is the operand before it, if it has no quotes."""
    start, text = lexer.position, lexer.text
    before = len(text[:start].rstrip())
    if text[start] == ";" or text[before - 1] == ";":
        semicolon = start if text[start] == ";" else before - 1
        return ParseError(start, "One query at a time: there is more after the ';'", Fix(semicolon, lexer.end, ""))
    if text[start] in ")]":
        message = f"Unexpected '{text[start]}': nothing was opened that it could close"
        return ParseError(start, message, Fix(start, start + 1, ""))
    operand = partial.operand
    if operand is not None and operand.is_quoted and start == operand.end and text[start] != ",":
        return _stray_quote(lexer, operand)
    if text[start] in "\"',":
        return _second_operand(lexer, partial)
    return _unexpected_word(lexer, partial, unquoted)


def _unexpected_word(lexer: Lexer, partial: PartialQuery, unquoted: Operand | None) -> ParseError:
    start = lexer.position
    word = lexer.read_word() or lexer.text[start]
    name = word.partition("=")[0]
    nearest = find_nearest(name, partial.clause_words)
    if nearest is not None or "=" in word:
        fix = Fix(start, start + len(name), nearest) if nearest else None
        message = f"Unknown clause {show_word(name)}: {partial.verb.name} takes {_list_clauses(partial)}"
        return ParseError(start, message, fix, nearest)
    message = f"Unexpected {show_word(word)}: expected {_list_clauses(partial)} or the end of the query"
    if unquoted is not None:
        message += " (a text with keywords in it needs quotes)"
        return ParseError(start, message, _quote_words(lexer, partial, unquoted.last, start))
    operand = partial.operand
    if operand is not None and not lexer.text[operand.end : start].strip() and len(operand.items) == 1:
        end = partial.find_text_end(lexer, start, ends_at_comma=True, for_suggestion=True)
        text = f"{operand.items[0]} {lexer.text[start:end]}"
        return ParseError(start, message, Fix(operand.start, end, quote(text)))
    return ParseError(start, message)


def _second_operand(lexer: Lexer, partial: PartialQuery) -> ParseError:
    start = lexer.position
    expected = f"expected {_list_clauses(partial)} or the end of the query"
    if lexer.text[start] == ",":
        is_last = not lexer.text[start + 1 : lexer.end].strip()
        return ParseError(start, f"Unexpected ',': {expected}", Fix(start, start + 1, "") if is_last else None)
    lexer.read_string()
    first = partial.operand
    if first is None or first.end > start or lexer.text[first.end : start].strip():
        return ParseError(start, f"Unexpected string: {expected}")
    if partial.verb.takes_keys and first.is_quoted:
        return ParseError(start, "Unexpected string: keys have commas between them", Fix(first.end, start, ", "))
    text = lexer.text[first.start : lexer.position]
    if first.is_quoted:
        text = f"{first.items[0]} {lexer.text[start + 1 : lexer.position - 1]}"
    fix = Fix(first.start, lexer.position, quote(text))
    return ParseError(start, "Unexpected string: a text is either all in quotes or all without", fix)


def _stray_quote(lexer: Lexer, operand: Operand) -> ParseError:
    mark = lexer.text[operand.start]
    last = lexer.text.rfind(mark, lexer.position, lexer.end)
    fix = Fix(operand.start, last + 1, quote(lexer.text[operand.start + 1 : last])) if last > 0 else None
    message = "A quote inside a string needs a backslash before it, or the other quotes around"
    return ParseError(lexer.position, message, fix)


def _quote_words(lexer: Lexer, partial: PartialQuery, start: int, after: int) -> Fix:
    """Return the fix that quotes the words from `start` up to the next clause behind `after`."""
    end = partial.find_text_end(lexer, after, ends_at_comma=partial.verb.takes_keys, for_suggestion=True)
    return Fix(start, end, quote(" ".join(lexer.text[start:end].split())))


def _find_clause_end(lexer: Lexer, partial: PartialQuery, after_keyword: int) -> int:
    lexer.position = after_keyword
    lexer.skip_assignment()
    if lexer.is_at_quote():
        lexer.read_string()
        return lexer.position
    return partial.find_text_end(lexer, lexer.position, ends_at_comma=False, for_suggestion=True)


def _list_clauses(partial: PartialQuery) -> str:
    return ", ".join(word for word in partial.clause_words if word not in ("REL_TYPE", "ORDER_BY"))
