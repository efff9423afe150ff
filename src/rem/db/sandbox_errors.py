"""Why the database did not run a SELECT of a user, in words that say what to do."""

from __future__ import annotations

import asyncpg

from rem.db.driver_errors import to_rem_error
from rem.errors import DatabaseUnavailableError, InvalidInputError, QueryLimitError, QuerySyntaxError, RemError

_STALE = frozenset(
    {
        "the scope of this query is not genuine",
        # What a role has left that was dropped while it was logged in.
        "permission denied for schema rem",
        "permission denied for function rem_sql_run",
    }
)
SELECT_ONLY_MESSAGE = (
    "SQL only reads: write a single SELECT. Rows are written and deleted by `rem db load` and `rem delete`."
)
_NO_SELECT = (
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidCursorDefinitionError,
    asyncpg.ActiveSQLTransactionError,
)
_TOO_LARGE = (
    asyncpg.ProgramLimitExceededError,
    asyncpg.InsufficientResourcesError,
    asyncpg.StatementTooComplexError,
)


def is_stale_access_error(error: Exception) -> bool:
    """Whether the keys or the role may have been replaced since the sandbox read them."""
    return isinstance(error, asyncpg.InsufficientPrivilegeError) and error.args[0] in _STALE


def to_select_error(error: Exception, seconds: float) -> RemError:
    """The error of REM's tree for what PostgreSQL says of a SELECT."""
    if isinstance(error, asyncpg.QueryCanceledError | TimeoutError):
        return QueryLimitError(
            f"The query took longer than {seconds:g} s and was stopped: narrow it with WHERE, or ask for less at once."
        )
    if not isinstance(error, asyncpg.PostgresError):
        return to_rem_error(error)
    said = str(error.args[0]) if error.args else type(error).__name__
    if isinstance(error, _NO_SELECT) or "non-volatile function" in said:
        return InvalidInputError(f"{SELECT_ONLY_MESSAGE} (PostgreSQL: {said}.)")
    if isinstance(error, _TOO_LARGE):
        return QueryLimitError(f"The query needs more room than it may have ({said}): ask for less at once.")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return InvalidInputError(f"SQL reads REM's own tables, with functions that only compute: {said}.")
    if isinstance(error, asyncpg.SyntaxOrAccessError):
        return _to_syntax_error(error, said)
    if isinstance(error, asyncpg.AdminShutdownError | asyncpg.CrashShutdownError):
        return DatabaseUnavailableError("The query was ended by the server: try again.")
    if isinstance(error, asyncpg.PostgresConnectionError):
        return to_rem_error(error)
    return InvalidInputError(f"PostgreSQL cannot run this: {said}.{_hint(error)}")


def _to_syntax_error(error: asyncpg.PostgresError, said: str) -> QuerySyntaxError:
    text = error.internal_query or ""
    before = text[: max(int(error.internal_position or 1) - 1, 0)]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return QuerySyntaxError(
        f"{said[:1].upper()}{said[1:]} (line {line}, column {column}).{_hint(error)}",
        reason=said,
        line=line,
        column=column,
        suggestion=error.hint,
    )


def _hint(error: asyncpg.PostgresError) -> str:
    return f" {error.hint}" if error.hint else ""
