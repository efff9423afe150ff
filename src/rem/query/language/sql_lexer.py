"""Where a piece of SQL ends. It is PostgreSQL that understands it; here only quotes, comments and brackets count."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple

from rem.query.language.syntax_errors import Fix, ParseError

_MARK = re.compile(
    r"(?P<escaped>\b[eE]')|(?P<word>[^\W\d][\w$]*+)|(?P<line>--[^\n\r]*+)|(?P<block>/\*)"
    r"|(?P<dollar>\$(?:[^\W\d]\w*+)?\$)|(?P<mark>['\"();])"
)
_REST_OF_STRING = {
    "'": re.compile(r"(?:[^']++|'')*+'"),
    '"': re.compile(r'(?:[^"]++|"")*+"'),
    "E'": re.compile(r"(?:[^'\\]++|\\.|'')*+'", re.DOTALL),
}
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_NOTHING = re.compile(r"(?:[\s;]++|--[^\n\r]*+|/\*.*?\*/)*+", re.DOTALL)
_SELECT = re.compile(r"(?:\s|\(|--[^\n\r]*+(?:[\n\r]|\Z)|/\*.*?\*/)*+(?:SELECT|WITH)\b(?!-)", re.IGNORECASE | re.DOTALL)

_WRITING = """
    ALTER ANALYZE BEGIN CALL CHECKPOINT CLUSTER COMMENT COMMIT COPY CREATE DEALLOCATE DECLARE DELETE DISCARD DO DROP
    EXECUTE EXPLAIN GRANT IMPORT INSERT LISTEN LOAD LOCK MERGE MOVE NOTIFY PREPARE REASSIGN REFRESH REINDEX RELEASE
    RESET REVOKE ROLLBACK SAVEPOINT SECURITY SET SHOW START TRUNCATE UNLISTEN UPDATE VACUUM VALUES
"""
NON_SELECT_KEYWORDS = frozenset(_WRITING.split())
"""The first words of statements that are no SELECT."""


def starts_with_select(text: str, at: int, end: int) -> bool:
    """Whether a SELECT stands here, perhaps behind comments, brackets or a WITH of its own."""
    return _SELECT.match(text, at, end) is not None


def is_statement_end(text: str, at: int) -> bool:
    """Whether nothing but semicolons and comments stand here."""
    return _NOTHING.fullmatch(text, at) is not None


def find_fragment_end(text: str, start: int, end: int, stops: Collection[str] = (), *, comments: bool = True) -> int:
    """Where SQL ends: before a `;`, one of the stop words or a `)` that nothing opened, else at the end."""
    at = start
    opened: list[int] = []
    while mark := _MARK.search(text, at, end):
        at = mark.end()
        if mark.lastgroup == "word":
            if not opened and mark[0].upper() in stops:
                return mark.start()
        elif mark[0] in ("(", ")", ";"):
            if not opened and mark[0] != "(":
                return mark.start()
            _balance(opened, mark)
        elif not comments and mark.lastgroup in ("line", "block"):
            raise ParseError(mark.start(), "A comment can stand in a whole SELECT only")
        else:
            at = _quoted_end(text, mark, end)
    if opened:
        raise ParseError(opened[-1], "Unclosed '(': it needs a ')'", Fix(end, end, ")"))
    return end


def _quoted_end(text: str, mark: re.Match[str], end: int) -> int:
    """Where a string or a comment ends."""
    match mark.lastgroup:
        case "line":
            return mark.end()
        case "block":
            return _comment_end(text, mark.start(), end)
        case "dollar":
            return _dollar_end(text, mark, end)
    return _string_end(text, mark, end)


def _balance(opened: list[int], mark: re.Match[str]) -> None:
    if mark[0] == "(":
        opened.append(mark.start())
    elif mark[0] == ")":
        opened.pop()
    else:
        raise ParseError(
            opened[-1], "Unclosed '(': it needs a ')' before the ';'", Fix(mark.start(), mark.start(), ")")
        )


def _string_end(text: str, mark: re.Match[str], end: int) -> int:
    closed = _REST_OF_STRING[mark[0].upper()].match(text, mark.end(), end)
    if closed is None:
        raise ParseError(mark.start(), "Unclosed string in the SQL", Fix(end, end, mark[0][-1]))
    return closed.end()


def _dollar_end(text: str, mark: re.Match[str], end: int) -> int:
    closed = text.find(mark[0], mark.end(), end)
    if closed < 0:
        raise ParseError(mark.start(), f"Unclosed string in the SQL: it needs {mark[0]} at its end")
    return closed + len(mark[0])


def _comment_end(text: str, start: int, end: int) -> int:
    """Comments of PostgreSQL nest."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start, end):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise ParseError(start, "Unclosed comment in the SQL: it needs a */", Fix(end, end, " */"))


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
_COMMENT_BOUND = re.compile(r"/\*|\*/")
SqlWordKind = Literal["word", "quoted", "string", "number", "mark"]


class SqlWord(NamedTuple):
    """A piece of a statement. A `word` is in lower case, as PostgreSQL folds it; a `quoted` one stands as it is."""

    kind: SqlWordKind
    text: str
    start: int

    @property
    def is_name(self) -> bool:
        """Whether a table or function may be named by it."""
        return self.kind in ("word", "quoted")


def split_sql_words(statement: str) -> Iterator[SqlWord]:
    """All of a statement but spaces and comments."""
    at = 0
    while found := _WORD.match(statement, at):
        at = found.end()
        match found.lastgroup:
            case "comment":
                at = _find_comment_end(statement, found.start())
            case "dollar":
                end = statement.find(found[0], at)
                if end < 0:
                    raise ParseError(found.start(), f"Unclosed string in the SQL: it needs {found[0]} at its end")
                at = end + len(found[0])
                yield SqlWord("string", "", found.start())
            case "string" | "quoted":
                if not (found["string_end"] or found["quoted_end"]):
                    raise ParseError(found.start(), "Unclosed string in the SQL")
                yield _quoted(found)
            case "word":
                yield SqlWord("word", found[0].lower(), found.start())
            case "number":
                yield SqlWord("number", found[0], found.start())
            case "mark":
                yield SqlWord("mark", found[0], found.start())


def _quoted(found: re.Match[str]) -> SqlWord:
    if found["quoted"] is None:
        return SqlWord("string", "", found.start())
    name = found["quoted"]
    # A name with escapes (U&"…") stays as it is written, and so is none that is known.
    text = name[1:-1].replace('""', '"') if name.startswith('"') else name
    return SqlWord("quoted", text, found.start())


def _find_comment_end(statement: str, start: int) -> int:
    """Comments of PostgreSQL nest."""
    depth = 0
    for edge in _COMMENT_BOUND.finditer(statement, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise ParseError(start, "Unclosed comment in the SQL: it needs a */")
