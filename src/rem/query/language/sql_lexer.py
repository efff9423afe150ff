"""Split SQL into words, and find where a piece of SQL ends.

PostgreSQL parses the SQL. This module only knows quotes, comments and brackets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple

from rem.query.language.syntax_errors import Fix, ParseError

SqlWordKind = Literal["word", "quoted", "string", "number", "mark"]

_MARK = re.compile(
    r"(?P<escaped>\b[eE]')|(?P<word>[^\W\d][\w$]*+)|(?P<line>--[^\n\r]*+)|(?P<block>/\*)"
    r"|(?P<dollar>\$(?:[^\W\d]\w*+)?\$)|(?P<mark>['\"();])"
)
_REST_OF_STRING = {
    "'": re.compile(r"(?:[^']++|'')*+'"),
    '"': re.compile(r'(?:[^"]++|"")*+"'),
    "E'": re.compile(r"(?:[^'\\]++|\\.|'')*+'", re.DOTALL),
}
_COMMENT_BOUND = re.compile(r"/\*|\*/")
_BLANK = re.compile(r"(?:[\s;]++|--[^\n\r]*+|/\*.*?\*/)*+", re.DOTALL)
_SELECT = re.compile(r"(?:\s|\(|--[^\n\r]*+(?:[\n\r]|\Z)|/\*.*?\*/)*+(?:SELECT|WITH)\b(?!-)", re.IGNORECASE | re.DOTALL)
_WORD = re.compile(
    r"""(?P<space>\s++|--[^\n\r]*+)
    |(?P<comment>/\*)
    |(?P<dollar>\$(?:[^\W\d]\w*+)?\$)
    |(?P<string>(?:[eE]'(?:[^'\\]++|\\.|'')*+|(?:[bBnNxX]|[uU]&)?'(?:[^']++|'')*+)(?P<string_end>'?))
    |(?P<quoted>(?:[uU]&)?"(?:[^"]++|"")*+(?P<quoted_end>"?))
    |(?P<word>[^\W\d][\w$]*+)
    |(?P<number>\d[\w.]*+)
    |(?P<mark>::|.)""",
    re.VERBOSE | re.DOTALL,
)


def starts_with_select(text: str, offset: int, end: int) -> bool:
    """Return whether a SELECT or WITH starts at an offset, possibly after comments and brackets."""
    return _SELECT.match(text, offset, end) is not None


def is_statement_end(text: str, offset: int) -> bool:
    """Return whether only semicolons, spaces and comments follow."""
    return _BLANK.fullmatch(text, offset) is not None


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
    rest = _REST_OF_STRING[mark[0].upper()].match(text, mark.end(), end)
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


class SqlWord(NamedTuple):
    """A word, string, number or sign of a statement.

    A `word` is in lower case, as PostgreSQL folds it. A `quoted` name is unchanged. The text of a string is left out.
    """

    kind: SqlWordKind
    text: str
    start: int

    @property
    def is_name(self) -> bool:
        """Whether it can name a table or a function."""
        return self.kind in ("word", "quoted")


def split_sql_words(statement: str) -> Iterator[SqlWord]:
    """Yield the words of a statement, without spaces and comments. Raise ParseError if a string is not closed."""
    offset = 0
    while token := _WORD.match(statement, offset):
        offset = token.end()
        match token.lastgroup:
            case "comment":
                offset = _find_comment_end(statement, token.start(), len(statement))
            case "dollar":
                offset = _find_dollar_end(statement, token, len(statement))
                yield SqlWord("string", "", token.start())
            case "string" | "quoted":
                if not (token["string_end"] or token["quoted_end"]):
                    raise ParseError(token.start(), "Unclosed string in the SQL")
                yield _make_quoted_word(token)
            case "word":
                yield SqlWord("word", token[0].lower(), token.start())
            case "number":
                yield SqlWord("number", token[0], token.start())
            case "mark":
                yield SqlWord("mark", token[0], token.start())


def _make_quoted_word(match: re.Match[str]) -> SqlWord:
    name = match["quoted"]
    if name is None:
        return SqlWord("string", "", match.start())
    # A name with escapes (U&"…") stays as written, so it equals no known name.
    text = name[1:-1].replace('""', '"') if name.startswith('"') else name
    return SqlWord("quoted", text, match.start())
