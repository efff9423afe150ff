"""Find where a piece of SQL starts and ends.

PostgreSQL parses the SQL. This module only knows quotes, comments and brackets.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from rem.query.syntax_errors import Fix, ParseError

_MARK = re.compile(
    r"(?P<escaped>\b[eE]')|(?P<word>[^\W\d][\w$]*+)|(?P<line>--[^\n\r]*+)|(?P<block>/\*)"
    r"|(?P<dollar>\$(?:[^\W\d]\w*+)?\$)|(?P<mark>['\"();])"
)
_MATCH_REST_OF_STRING = {
    "'": re.compile(r"(?:[^']++|'')*+'").match,
    '"': re.compile(r'(?:[^"]++|"")*+"').match,
    "E'": re.compile(r"(?:[^'\\]++|\\.|'')*+'", re.DOTALL).match,
}
_COMMENT_BOUND = re.compile(r"/\*|\*/")
_match_blank = re.compile(r"(?:[\s;]++|--[^\n\r]*+|/\*.*?\*/)*+", re.DOTALL).fullmatch
_match_select = re.compile(
    r"(?:\s|\(|--[^\n\r]*+(?:[\n\r]|\Z)|/\*.*?\*/)*+(?:SELECT|WITH)\b(?!-)", re.IGNORECASE | re.DOTALL
).match


def starts_with_select(text: str, offset: int, end: int) -> bool:
    """Return whether a SELECT or WITH starts at an offset, possibly after comments and brackets."""
    return _match_select(text, offset, end) is not None


def is_statement_end(text: str, offset: int) -> bool:
    """Return whether only semicolons, spaces and comments follow."""
    return _match_blank(text, offset) is not None


def find_fragment_end(
    text: str, start: int, end: int, stop_words: Collection[str] = (), *, allow_comments: bool = True
) -> int:
    """Return where a piece of SQL ends: before a `;`, a stop word or a `)` that nothing opened, or at `end`."""
    offset = start
    open_brackets: list[int] = []
    while mark := _MARK.search(text, offset, end):
        offset = mark.end()
        if mark.lastgroup == "word":
            if not open_brackets and mark[0].upper() in stop_words:
                return mark.start()
        elif mark[0] in ("(", ")", ";"):
            if not open_brackets and mark[0] != "(":
                return mark.start()
            _track_bracket(open_brackets, mark)
        elif not allow_comments and mark.lastgroup in ("line", "block"):
            raise ParseError(mark.start(), "A comment can stand in a whole SELECT only")
        else:
            offset = _find_quoted_end(text, mark, end)
    if open_brackets:
        raise ParseError(open_brackets[-1], "Unclosed '(': it needs a ')'", Fix(end, end, ")"))
    return end


def _track_bracket(open_brackets: list[int], mark: re.Match[str]) -> None:
    if mark[0] == "(":
        open_brackets.append(mark.start())
    elif mark[0] == ")":
        open_brackets.pop()
    else:
        fix = Fix(mark.start(), mark.start(), ")")
        raise ParseError(open_brackets[-1], "Unclosed '(': it needs a ')' before the ';'", fix)


def _find_quoted_end(text: str, mark: re.Match[str], end: int) -> int:
    """Return the offset where a string or a comment ends."""
    match mark.lastgroup:
        case "line":
            return mark.end()
        case "block":
            return _find_comment_end(text, mark.start(), end)
        case "dollar":
            return _find_dollar_end(text, mark, end)
    return _find_string_end(text, mark, end)


def _find_string_end(text: str, mark: re.Match[str], end: int) -> int:
    rest = _MATCH_REST_OF_STRING[mark[0].upper()](text, mark.end(), end)
    if rest is None:
        raise ParseError(mark.start(), "Unclosed string in the SQL", Fix(end, end, mark[0][-1]))
    return rest.end()


def _find_dollar_end(text: str, mark: re.Match[str], end: int) -> int:
    closing = text.find(mark[0], mark.end(), end)
    if closing < 0:
        raise ParseError(mark.start(), f"Unclosed string in the SQL: it needs {mark[0]} at its end")
    return closing + len(mark[0])


def _find_comment_end(text: str, start: int, end: int) -> int:
    """Return the offset where a block comment ends. PostgreSQL's comments nest."""
    depth = 0
    for bound in _COMMENT_BOUND.finditer(text, start, end):
        depth += 1 if bound[0] == "/*" else -1
        if depth == 0:
            return bound.end()
    raise ParseError(start, "Unclosed comment in the SQL: it needs a */", Fix(end, end, " */"))
