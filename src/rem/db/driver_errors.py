"""The driver's errors, translated once into REM's own tree; the original stays as the cause."""

from __future__ import annotations

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
    "updated_after_created": (InvalidInputError, "updated_at is before created_at."),
}


ASYNCPG_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
DRIVER_ERRORS = (*ASYNCPG_ERRORS, OSError, TimeoutError)


@contextmanager
def translate_driver_errors() -> Iterator[None]:
    """Raise REM's errors in place of the driver's."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise to_rem_error(error) from error


def to_rem_error(error: Exception) -> RemError:
    """The error of REM's tree that says the same."""
    name = getattr(error, "constraint_name", None) or ""
    if name in _CONSTRAINT_ERRORS:
        kind, message = _CONSTRAINT_ERRORS[name]
        return kind(message)
    if isinstance(error, asyncpg.UniqueViolationError):
        return _to_unique_violation_error(error, name)
    if isinstance(error, asyncpg.NotNullViolationError) and error.column_name == "user_id":
        return InvalidInputError("Sessions and messages have an owner: give a user.")
    for kinds, to, message in _DRIVER_ERROR_CLASSES:
        if isinstance(error, kinds):
            return to(message.format(error=str(error) or type(error).__name__))
    return DatabaseError(f"The database reported an error: {error}")


_DRIVER_ERROR_CLASSES: list[tuple[tuple[type[Exception], ...], type[RemError], str]] = [
    ((asyncpg.IntegrityConstraintViolationError,), InvalidInputError, "The database refused the row: {error}"),
    (
        (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError),
        MigrationError,
        "The schema is not complete ({error}): run `rem db migrate`.",
    ),
    ((asyncpg.DataError,), InvalidInputError, "The database cannot hold a value: {error}"),
    (
        (asyncpg.TransactionRollbackError,),
        ConflictError,
        "Another writer was in the way, and nothing of this call was stored: try again ({error}).",
    ),
    (
        (asyncpg.DiskFullError,),
        DatabaseError,
        "The database's disk is full: free some space; nothing of this call was stored.",
    ),
    (
        (asyncpg.ReadOnlySQLTransactionError,),
        DatabaseError,
        "The database is read-only (a replica?): nothing was stored.",
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
        "The database does not answer ({error}): see `rem db status`.",
    ),
]


def _to_unique_violation_error(error: asyncpg.UniqueViolationError, name: str) -> RemError:
    if name.endswith("_live_key"):
        return ConflictError(
            f"Another of the owner's rows has this key already ({error.detail}). Names are swapped one row at a time, "
            "by way of a third name."
        )
    if name.endswith("_pkey"):
        return ConflictError("The id is not available: leave it out, and the store gives one.")
    return ConflictError(f"The row contradicts another one: {error.detail or error}")
