"""Translate errors of PostgreSQL for a SELECT of a user into errors that name the next step."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from rem.db.driver_errors import to_rem_error
from rem.errors import DatabaseUnavailableError, InvalidInputError, QueryLimitError, QuerySyntaxError, RemError

_STALE_ACCESS_MESSAGES = frozenset(
    {
        "the scope of this query is not genuine",
        # A role that was dropped during its session gets these.
        "permission denied for schema rem",
        "permission denied for function rem_sql_run",
    }
)
SELECT_ONLY_MESSAGE = (
    "SQL only reads: write a single SELECT. Rows are written and deleted by `rem db load` and `rem delete`."
)
_NOT_SELECT_ERRORS = (
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidCursorDefinitionError,
    asyncpg.ActiveSQLTransactionError,
)
_TOO_LARGE_ERRORS = (
    asyncpg.ProgramLimitExceededError,
    asyncpg.InsufficientResourcesError,
    asyncpg.StatementTooComplexError,
)


def is_stale_access_error(error: Exception) -> bool:
    """Return True if the keys or the role may have been replaced since the sandbox read them."""
    return isinstance(error, asyncpg.InsufficientPrivilegeError) and error.args[0] in _STALE_ACCESS_MESSAGES


def to_timeout_error(seconds: float, *, has_ended: bool) -> QueryLimitError:
    """Return the error for a statement that ran for too long. `has_ended`: the server no longer works on it."""
    state = "was stopped" if has_ended else "is being stopped, which can take some time"
    return QueryLimitError(
        f"The query took longer than {seconds:g} s and {state}: narrow it with WHERE, or select less at once."
    )


def to_select_error(error: Exception, seconds: float) -> RemError:
    """Return the error of REM for an error of PostgreSQL. `seconds` is the timeout of the statement."""
    if isinstance(error, asyncpg.QueryCanceledError):
        return to_timeout_error(seconds, has_ended=True)
    if not isinstance(error, asyncpg.PostgresError):
        return to_rem_error(error)
    message = str(error.args[0]) if error.args else type(error).__name__
    if isinstance(error, _NOT_SELECT_ERRORS) or "non-volatile function" in message:
        return InvalidInputError(f"{SELECT_ONLY_MESSAGE} (PostgreSQL: {message}.)")
    if isinstance(error, _TOO_LARGE_ERRORS):
        return QueryLimitError(f"The query needs more memory than its limit ({message}): select less at once.")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return InvalidInputError(f"SQL reads REM's own tables, with functions that only compute: {message}.")
    if isinstance(error, asyncpg.SyntaxOrAccessError):
        return _to_syntax_error(error, message)
    if isinstance(error, asyncpg.AdminShutdownError | asyncpg.CrashShutdownError):
        return DatabaseUnavailableError("The server ended the query: try again.")
    if isinstance(error, asyncpg.PostgresConnectionError):
        return to_rem_error(error)
    return InvalidInputError(f"PostgreSQL cannot run this: {message}.{_hint(error)}")


def to_unknown_table_error(error: asyncpg.UndefinedTableError, tables: Sequence[str]) -> QuerySyntaxError:
    """Return the error for a table that does not exist, with those that a SELECT may read."""
    return _to_syntax_error(error, f"{error.args[0]}: the tables are {', '.join(tables)}")


def _to_syntax_error(error: asyncpg.PostgresError, message: str) -> QuerySyntaxError:
    text = error.internal_query or ""
    before = text[: max(int(error.internal_position or 1) - 1, 0)]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return QuerySyntaxError(
        f"{message[:1].upper()}{message[1:]} (line {line}, column {column}).{_hint(error)}",
        reason=message,
        line=line,
        column=column,
        suggestion=error.hint,
    )


def _hint(error: asyncpg.PostgresError) -> str:
    return f" {error.hint}" if error.hint else ""
