"""Translate errors of the driver to errors of REM. The original error stays as the cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from rem.errors import (
    ConflictError,
    DatabaseError,
    DatabaseUnavailableError,
    ImmutableError,
    InvalidInputError,
    MigrationError,
    QueryLimitError,
    RemError,
)

_CONSTRAINT_ERRORS: dict[str, tuple[type[RemError], str]] = {
    "key_fits": (
        InvalidInputError,
        "The key must have 1 to 1,024 bytes once normalised: use a short, readable label.",
    ),
    "dst_fits": (InvalidInputError, "An edge's dst must have 1 to 1,024 bytes once normalised."),
    "content_is_immutable": (
        ImmutableError,
        "The content of messages and documents never changes: store a new one, or delete this one.",
    ),
    "identity_is_immutable": (ConflictError, "The id, tenant and owner of a stored entity never change."),
    "session_is_deleted": (
        ConflictError,
        "The session is deleted: restore it before adding or restoring its messages.",
    ),
    "messages_session": (
        InvalidInputError,
        "There is no such session of this user: create it before its messages.",
    ),
    "shared_sessions_session": (InvalidInputError, "There is no such session of this owner to share."),
    "shared_by_owner": (InvalidInputError, "There is no such session of this owner to share."),
    "shared_sessions_once": (ConflictError, "The session is shared with this user already."),
    "users_live_email": (
        ConflictError,
        "Another user has this e-mail address: update that one, or leave the address out.",
    ),
    "content_or_tool_calls": (InvalidInputError, "A message without content needs tool calls."),
    "result_fits": (
        QueryLimitError,
        "The rows of the result have more than 64 MiB together: ask for fewer keys or with a lower LIMIT (in a list: "
        "`limit`), or select some of their columns with SQL.",
    ),
    "updated_after_created": (InvalidInputError, "updated_at is before created_at."),
}


PARTITIONS_SCHEMA = "rem_partitions"
ASYNCPG_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
DRIVER_ERRORS = (*ASYNCPG_ERRORS, OSError, TimeoutError)


@contextmanager
def translate_driver_errors() -> Iterator[None]:
    """Raise an error of REM for each error of the driver in the block."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise to_rem_error(error) from error


def to_rem_error(error: Exception) -> RemError:
    """Return the error of REM that corresponds to an error of the driver."""
    name = read_constraint_name(error)
    if name in _CONSTRAINT_ERRORS:
        error_class, message = _CONSTRAINT_ERRORS[name]
        return error_class(message)
    if isinstance(error, asyncpg.UniqueViolationError):
        return _to_unique_violation_error(error, name)
    if isinstance(error, asyncpg.NotNullViolationError) and error.column_name == "user_id":
        return InvalidInputError("Sessions and messages have an owner: give a user.")
    for driver_classes, error_class, message in _DRIVER_ERROR_CLASSES:
        if isinstance(error, driver_classes):
            # PostgreSQL's hints are for authors of SQL.
            reason = str(error).partition("\nHINT:")[0] or type(error).__name__
            return error_class(message.format(error=reason))
    return DatabaseError(f"The database reported an error: {error}")


def read_constraint_name(error: Exception) -> str:
    """Return the name of the violated constraint, without the number of the partition; empty if there is none."""
    name = getattr(error, "constraint_name", None) or ""
    is_partition = getattr(error, "schema_name", None) == PARTITIONS_SCHEMA
    return re.sub(r"_\d+\Z", "", name) if is_partition else name


_DRIVER_ERROR_CLASSES: list[tuple[tuple[type[Exception], ...], type[RemError], str]] = [
    ((asyncpg.IntegrityConstraintViolationError,), InvalidInputError, "The database refused the row: {error}"),
    (
        (
            asyncpg.UndefinedTableError,
            asyncpg.InvalidSchemaNameError,
            asyncpg.UndefinedFunctionError,
            asyncpg.UndefinedColumnError,
            asyncpg.UndefinedParameterError,
        ),
        MigrationError,
        "The schema does not fit this version of REM ({error}). If a newer REM has migrated the database, upgrade this "
        "one and start it again; otherwise run `rem db migrate`.",
    ),
    ((asyncpg.DataError,), InvalidInputError, "The database cannot hold a value: {error}"),
    (
        (asyncpg.TransactionRollbackError,),
        ConflictError,
        "Another writer changed the same rows, and this call stored nothing: try again ({error}).",
    ),
    (
        (asyncpg.DiskFullError,),
        DatabaseError,
        "The disk of the database is full: free some space. This call stored nothing.",
    ),
    (
        (asyncpg.ReadOnlySQLTransactionError,),
        DatabaseUnavailableError,
        "The database is read-only (a replica, or a primary after a failover?): this call stored nothing.",
    ),
    ((asyncpg.InsufficientPrivilegeError,), DatabaseError, "The database role lacks a right: {error}"),
    (
        (
            asyncpg.PostgresConnectionError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
            asyncpg.CannotConnectNowError,
            asyncpg.AdminShutdownError,
            asyncpg.CrashShutdownError,
            asyncpg.TooManyConnectionsError,
            OSError,
            TimeoutError,
        ),
        DatabaseUnavailableError,
        "The database does not respond ({error}): see `rem db status`.",
    ),
]


def _to_unique_violation_error(error: asyncpg.UniqueViolationError, name: str) -> RemError:
    if name.endswith("_live_key"):
        return ConflictError(
            f"Another row of the owner already has this key{_read_key(error.detail)}. To swap two names, rename one "
            "row at a time and use a third name in between."
        )
    if name.endswith("_pkey"):
        return ConflictError("The id is not available: leave it out, and the store assigns one.")
    return ConflictError(f"The row conflicts with another row: {error.detail or error}")


def _read_key(detail: str | None) -> str:
    """Return the key at the end of PostgreSQL's detail: `Key (…, key)=(default, alice, boat) already exists.`"""
    values, exists, _ = (detail or "").rpartition(") already exists")
    return f": {values.rpartition('=(')[2].rpartition(', ')[2]}" if exists else ""
