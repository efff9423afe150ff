"""SqlSandbox: run SELECT statements of users. They see own and shared rows of their scope, and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncpg
from loguru import logger

from rem.context import Scope
from rem.db.driver_errors import DRIVER_ERRORS, to_rem_error
from rem.db.fair_slots import FairSlots, Slot
from rem.db.sandbox_backends import end_backend, limit_backend
from rem.db.sandbox_errors import is_stale_access_error, to_select_error, to_timeout_error, to_unknown_table_error
from rem.db.sql import query
from rem.errors import (
    DatabaseUnavailableError,
    DatabaseUnsupportedError,
    InvalidInputError,
    MigrationError,
    QueryLimitError,
    RemError,
)
from rem.metrics import SQL_STOPPED

if TYPE_CHECKING:
    from asyncpg.transaction import Transaction

    from rem.db.database import Connection, Database
    from rem.settings import Settings

MAX_STATEMENT_CHARS = 20_000
GRACE_SECONDS = 1.0
"""The client gives up this much later than the server, in case the server does not notice its timeout."""
MAX_QUEUE_SECONDS = 30.0
"""Maximum wait for a free connection."""
MAX_END_WAIT_SECONDS = 3.0
"""Maximum wait for the end of a backend that has overrun, before its user gets the error."""
MAX_CHARS_PARSED_AT_ONCE = 100_000
_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class SelectResult:
    """The rows of a SELECT as plain JSON."""

    rows: list[dict[str, Any]]
    is_cut_off: bool
    """True if there are more rows than the limits allow."""
    milliseconds: float


@dataclass(frozen=True, slots=True)
class _Credentials:
    """The login of the sandbox role, and the keys that sign scopes."""

    role_name: str
    login: Mapping[str, Any] = field(repr=False)
    inner_key: bytes = field(repr=False)
    outer_key: bytes = field(repr=False)

    def sign(self, scope: Scope, pid: int, started_at: int) -> str:
        """Return the signed scope. It is valid in one transaction of one backend."""
        payload = json.dumps([pid, started_at, scope.tenant_id, scope.user_id], ensure_ascii=False)
        inner = hashlib.sha256(self.inner_key + payload.encode()).digest()
        return f"{hashlib.sha256(self.outer_key + inner).hexdigest()}:{payload}"


@dataclass(frozen=True, slots=True)
class _Access:
    """The credentials, and the pool that was opened with them."""

    credentials: _Credentials
    pool: asyncpg.Pool[asyncpg.Record]


class SqlSandbox:
    """Runs SELECT statements on a separate small pool, which the first statement opens."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._postgres = settings.postgres
        self._settings = settings.sql
        self._lock = asyncio.Lock()
        self._access: _Access | None = None
        self._retired: list[asyncio.Task[None]] = []
        self._slots = FairSlots(settings.sql.pool_max_size)
        self._endings: set[asyncio.Task[bool]] = set()
        self._has_warned = False

    async def select(self, scope: Scope, statement: str, *, limit: int | None = None) -> SelectResult:
        """Run one SELECT in a scope. Return at most `limit` rows, and at most what the settings allow."""
        _check_text(statement)
        if limit is not None and limit < 1:
            raise InvalidInputError(f"The limit is {limit}: it must be at least 1.")
        max_rows = min(limit or self._settings.max_rows, self._settings.max_rows)
        access = await self._get_access()
        started = time.perf_counter()
        try:
            lines = await self._run(access, scope, statement, max_rows + 1)
        except _StaleAccessError as stale:
            access = await self._renew_access(access, stale)
            try:
                lines = await self._run(access, scope, statement, max_rows + 1)
            except _StaleAccessError as error:
                raise error.rem_error from error
        milliseconds = (time.perf_counter() - started) * 1000
        build = partial(_build_result, lines, max_rows, self._settings.max_bytes, milliseconds)
        # Megabytes of small values take long to parse.
        is_long = sum(len(line or "") for line in lines) > MAX_CHARS_PARSED_AT_ONCE
        return await asyncio.to_thread(build) if is_long else build()

    async def close(self) -> None:
        """Close all connections."""
        async with self._lock:
            access, self._access = self._access, None
        if self._endings:
            await asyncio.wait(tuple(self._endings), timeout=MAX_END_WAIT_SECONDS)
        for ending in tuple(self._endings):
            ending.cancel()
        if access is not None:
            await access.pool.close()
        await asyncio.gather(*self._retired)

    async def find_security_gaps(self) -> list[str]:
        """Return the rights that the server leaves open to the role. Raise an error if no SELECT can run."""
        await self.select(Scope(), "SELECT 1")
        access = await self._get_access()
        async with self._database.connection() as connection:
            gaps = await connection.fetch(query("db/sandbox", "security_gaps"), access.credentials.role_name)
        return [gap for (gap,) in gaps]

    async def _run(self, access: _Access, scope: Scope, statement: str, rows: int) -> list[str | None]:
        """Run a statement when it is the turn of its user."""
        turn = _Turn(await self._slots.acquire((scope.tenant_id, scope.user_id), MAX_QUEUE_SECONDS))
        try:
            async with _lease(access.pool) as connection:
                return await self._fetch(turn, connection, access, (scope, statement, rows))
        except QueryLimitError:
            SQL_STOPPED.record()
            raise
        except _OverrunError as error:
            SQL_STOPPED.record()
            has_ended = await turn.wait_for_end()
            raise to_timeout_error(self._settings.timeout_seconds, has_ended=has_ended) from error
        finally:
            turn.finish()

    async def _fetch(
        self, turn: _Turn, connection: Connection, access: _Access, work: tuple[Scope, str, int]
    ) -> list[str | None]:
        """Fetch the rows of a statement as JSON."""
        scope, statement, rows = work
        seconds = self._settings.timeout_seconds
        pid = connection.get_server_pid()
        transaction = connection.transaction(readonly=True)
        await _begin(transaction)
        try:
            started_at = await connection.fetchval(query("db/sandbox", "transaction_start"))
            signed = access.credentials.sign(scope, pid, started_at)
            lines = await connection.fetch(
                query("db/sandbox", "run"), signed, statement, rows, self._settings.max_bytes
            )
        except (TimeoutError, asyncio.CancelledError) as error:
            # The server has not noticed its timeout, or nobody waits for the result: it would not answer a rollback.
            connection.terminate()
            turn.ending = self._start_ending(access, pid)
            if isinstance(error, TimeoutError):
                raise _OverrunError from error
            raise
        except asyncpg.UndefinedTableError as error:
            raise to_unknown_table_error(error, await self._list_tables()) from error
        except asyncpg.PostgresError as error:
            if is_stale_access_error(error):
                raise _StaleAccessError(to_select_error(error, seconds)) from error
            raise to_select_error(error, seconds) from error
        finally:
            # Never a commit: it would keep settings and messages of the statement.
            if turn.ending is None:
                await transaction.rollback()
        return [line for (line,) in lines]

    async def _list_tables(self) -> list[str]:
        async with self._database.connection() as connection:
            return [name for (name,) in await connection.fetch(query("db/sandbox", "tables"))]

    def _start_ending(self, access: _Access, pid: int) -> asyncio.Task[bool]:
        """End a backend in the background, however long that takes."""
        ending = asyncio.create_task(end_backend(self._database, access.credentials.login, pid))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        return ending

    async def _get_access(self) -> _Access:
        if self._access is None:
            async with self._lock:
                if self._access is None:
                    self._access = await self._open_access()
        return self._access

    async def _renew_access(self, stale: _Access, error: _StaleAccessError) -> _Access:
        """Open a new access if the login or the keys were replaced. Otherwise raise the error of the statement."""
        async with self._lock:
            if self._access is stale:
                async with self._database.connection() as connection:
                    if await self._read_credentials(connection) == stale.credentials:
                        raise error.rem_error from error
                self._access = await self._open_access()
                # Other statements may still run there. They end, or get the same error.
                self._retired.append(asyncio.create_task(stale.pool.close()))
            elif self._access is None:
                self._access = await self._open_access()
            return self._access

    async def _open_access(self) -> _Access:
        async with self._database.connection() as connection:
            credentials = await self._read_credentials(connection)
            await self._refuse_unsafe(connection, credentials.role_name)
            if self._database.is_embedded and not await connection.fetchval(query("db/sandbox", "is_catalog_closed")):
                await connection.execute(query("db/sandbox", "close_catalog"))

        async def connect(*_args: Any, **kwargs: Any) -> asyncpg.Connection[asyncpg.Record]:
            return await self._connect(credentials, **kwargs)

        pool = await asyncpg.create_pool(
            min_size=0,
            max_size=self._settings.pool_max_size,
            max_inactive_connection_lifetime=60,
            connect=connect,
            connection_class=_SandboxConnection,
        )
        return _Access(credentials, pool)

    async def _read_credentials(self, connection: Connection) -> _Credentials:
        """Read the login and the keys. Only the owner of the schema can read them."""
        dsn = self._postgres.sql_connection_string
        if dsn is not None and not self._database.is_embedded:
            login = {"dsn": dsn.get_secret_value().strip()}
            role_name = await self._use_role(connection, login)
        else:
            try:
                row = await connection.fetchrow(query("db/sandbox", "login"))
            except (asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError) as error:
                raise await self._explain_missing_role(connection, error) from error
            except asyncpg.UndefinedFunctionError as error:
                raise MigrationError(f"The schema is not complete ({error.args[0]}): run `rem db migrate`.") from error
            assert row is not None  # noqa: S101  # the function returns one row
            role_name = row["role_name"]
            login = {"user": role_name, "password": row["role_password"]}
        keys = await connection.fetchrow(query("db/sandbox", "keys"))
        assert keys is not None  # noqa: S101  # a migration inserted it
        return _Credentials(role_name, login, keys["inner_key"], keys["outer_key"])

    async def _use_role(self, connection: Connection, login: Mapping[str, Any]) -> str:
        """Grant the role of the settings the rights that the SQL verb needs, and return its name."""
        connection_of_role = await self._log_in(login)
        try:
            role_name = str(await connection_of_role.fetchval("SELECT current_user"))
        finally:
            await connection_of_role.close()
        await self._refuse_unsafe(connection, role_name)
        if not self._database.server_info.is_replica:
            await connection.execute(query("db/sandbox", "use_role"), role_name)
        return role_name

    async def _refuse_unsafe(self, connection: Connection, role_name: str) -> None:
        unsafe_rights = [right for (right,) in await connection.fetch(query("db/sandbox", "unsafe_rights"), role_name)]
        if unsafe_rights:
            raise DatabaseUnsupportedError(
                f"The role {role_name} must not run SELECT statements of users: {'; '.join(unsafe_rights)}. Revoke "
                "these rights, or let REM create a role (docs/sql.md)."
            )

    async def _explain_missing_role(
        self, connection: Connection, error: asyncpg.PostgresError
    ) -> DatabaseUnsupportedError:
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            return DatabaseUnsupportedError(
                "The SQL verb has no login role yet, and a replica cannot create one: run `rem doctor` on the primary."
            )
        role_name = await connection.fetchval(query("db/sandbox", "role_name"))
        return DatabaseUnsupportedError(
            f"The role {self._database.server_info.role_name} may not create the login role of the SQL verb ({error}). "
            "As an "
            f'administrator run ALTER ROLE "{self._database.server_info.role_name}" CREATEROLE; or create it yourself '
            f"(CREATE ROLE {role_name} LOGIN NOINHERIT PASSWORD '…') and set POSTGRES__SQL_CONNECTION_STRING."
        )

    async def _log_in(self, login: Mapping[str, Any]) -> asyncpg.Connection[asyncpg.Record]:
        try:
            return await self._database.connect_as(login)
        except DatabaseUnavailableError as error:
            raise DatabaseUnavailableError(
                f"The role of the SQL verb cannot log in. {error} Allow it in pg_hba.conf and in any connection "
                "pooler, or set POSTGRES__SQL_CONNECTION_STRING."
            ) from error

    async def _connect(self, credentials: _Credentials, **kwargs: Any) -> asyncpg.Connection[asyncpg.Record]:
        milliseconds = str(max(1, round(self._settings.timeout_seconds * 1000)))
        connection = await self._log_in(
            {
                **credentials.login,
                # No cache: a statement of one user leaves nothing for the next user.
                "statement_cache_size": 0,
                "command_timeout": self._settings.timeout_seconds + GRACE_SECONDS,
                "server_settings": {
                    "application_name": "rem sql",
                    "search_path": self._database.server_info.search_path,
                    "timezone": "UTC",
                    "jit": "off",
                    "row_security": "on",
                    "default_transaction_read_only": "on",
                    "statement_timeout": milliseconds,
                    "idle_in_transaction_session_timeout": milliseconds,
                    "work_mem": "16MB",
                    "hash_mem_multiplier": "1",
                    "max_parallel_workers_per_gather": "0",
                },
                **kwargs,
            }
        )
        await self._limit_memory(connection.get_server_pid())
        return connection

    async def _limit_memory(self, pid: int) -> None:
        is_limited = await limit_backend(self._database, pid, self._settings.max_memory_bytes)
        if self._database.is_embedded and not is_limited and not self._has_warned:
            self._has_warned = True
            logger.warning("SQL__MAX_MEMORY_BYTES cannot be set here: a query can use all memory of this machine.")


@dataclass(slots=True)
class _Turn:
    """The turn of one statement. It lasts until the server no longer works on the statement."""

    slot: Slot
    ending: asyncio.Task[bool] | None = None
    """Ends the backend of a statement that was given up."""

    async def wait_for_end(self) -> bool:
        """Wait a short time for the end of the backend, and return whether it has ended."""
        if self.ending is None:
            return True
        done, _ = await asyncio.wait((self.ending,), timeout=MAX_END_WAIT_SECONDS)
        return any(task.result() for task in done)

    def finish(self) -> None:
        if self.ending is None:
            self.slot.release()
        else:
            self.ending.add_done_callback(lambda _: self.slot.release())


class _OverrunError(Exception):
    """The server has not noticed the timeout of a statement."""


class _StaleAccessError(Exception):
    """The server refused the signature or the login. They may have been replaced, or the refusal is meant."""

    def __init__(self, rem_error: RemError) -> None:
        super().__init__(str(rem_error))
        self.rem_error = rem_error


class _SandboxConnection(asyncpg.Connection):
    def get_reset_query(self) -> str:
        """Return the query that removes all session state before the next statement."""
        return "DISCARD ALL"


@asynccontextmanager
async def _lease(pool: asyncpg.Pool[asyncpg.Record]) -> AsyncIterator[Connection]:
    try:
        connection = await pool.acquire(timeout=MAX_QUEUE_SECONDS)
    except TimeoutError as error:
        raise DatabaseUnavailableError("The database does not answer: try again in a moment.") from error
    except DatabaseUnavailableError as error:
        raise _StaleAccessError(error) from error
    except DRIVER_ERRORS as error:
        raise to_rem_error(error) from error
    try:
        yield connection
    except DRIVER_ERRORS as error:
        raise to_rem_error(error) from error
    finally:
        await asyncio.shield(_release(pool, connection))


async def _begin(transaction: Transaction) -> None:
    """Begin a transaction. Raise _StaleAccessError if the connection was lost in the pool: nothing has run yet."""
    try:
        await transaction.start()
    except DRIVER_ERRORS as error:
        raise _StaleAccessError(to_rem_error(error)) from error


async def _release(pool: asyncpg.Pool[asyncpg.Record], connection: Any) -> None:
    try:
        await pool.release(connection, timeout=GRACE_SECONDS)
    except DRIVER_ERRORS:
        # The connection is broken. The pool drops it and opens another.
        connection.terminate()


def _check_text(statement: str) -> None:
    if not statement.strip():
        raise InvalidInputError("The SQL is empty: write a SELECT, such as SELECT name FROM users LIMIT 3.")
    if len(statement) > MAX_STATEMENT_CHARS:
        raise QueryLimitError(
            f"The SQL has {len(statement):,} characters, more than {MAX_STATEMENT_CHARS:,}: shorten it."
        )
    try:
        statement.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError("The SQL is not valid Unicode text.") from error
    if "\0" in statement:
        raise InvalidInputError("The SQL contains a NUL character; remove it.")


def _build_result(lines: list[str | None], max_rows: int, max_bytes: int, milliseconds: float) -> SelectResult:
    is_cut_off = len(lines) > max_rows or (bool(lines) and lines[-1] is None)
    rows = [_parse_row(line) for line in lines[:max_rows] if line is not None]
    if is_cut_off and not rows:
        raise QueryLimitError(f"The first row alone has more than {max_bytes:,} bytes: select less of it.")
    return SelectResult(rows, is_cut_off, milliseconds)


def _parse_row(line: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(
        line, object_pairs_hook=_build_object, parse_int=_parse_int, parse_float=_parse_float
    )
    return row


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a row. Number columns that have the same name (`SELECT * FROM a JOIN b`): `id`, `id_2`."""
    named = dict(pairs)
    if len(named) == len(pairs):
        return named
    named = {}
    for name, value in pairs:
        number, unique = 1, name
        while unique in named:
            number += 1
            unique = f"{name}_{number}"
        named[unique] = value
    return named


def _parse_int(text: str) -> int | str:
    """Return an integer of 64 bits, or the text of a longer one, which other readers of JSON would not accept."""
    if len(text) > 20:
        return text
    value = int(text)
    return value if -_INT64 <= value < _INT64 else text


def _parse_float(text: str) -> float | str:
    """Return a float, or the text if a float would lose digits."""
    value = float(text)
    return value if Decimal(repr(value)) == Decimal(text) else text
