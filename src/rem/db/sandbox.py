"""SqlSandbox: SELECTs that users write, over their own and their tenant's shared rows, and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg

from rem.context import Scope
from rem.db.driver_errors import DRIVER_ERRORS, to_rem_error
from rem.db.sandbox_errors import is_stale_access_error, to_select_error
from rem.db.sql import query
from rem.errors import (
    DatabaseUnavailableError,
    DatabaseUnsupportedError,
    InvalidInputError,
    MigrationError,
    QueryLimitError,
    RemError,
)

if TYPE_CHECKING:
    from rem.db.database import Connection, Database
    from rem.settings import Settings

MAX_STATEMENT_CHARS = 100_000
_GRACE_SECONDS = 2.0
"""How much later than the server the client gives up, in case the server does not notice."""
_QUEUE_SECONDS = 30.0
_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class SelectResult:
    """The rows of a SELECT as plain JSON."""

    rows: list[dict[str, Any]]
    is_cut_off: bool
    """Whether there are more rows than one answer may have."""
    milliseconds: float


@dataclass(frozen=True, slots=True)
class ReadableSchema:
    """What a SELECT may name."""

    tables: Mapping[str, tuple[str, ...]]
    """Each table with its columns."""
    functions: frozenset[str]


StatementCheck: TypeAlias = Callable[[str, ReadableSchema], None]
"""Refuses a statement before the database does, in better words."""


@dataclass(frozen=True, slots=True)
class _Credentials:
    role_name: str
    login: Mapping[str, Any] = field(repr=False)
    inner_key: bytes = field(repr=False)
    outer_key: bytes = field(repr=False)

    def sign(self, scope: Scope, pid: int, moment: int) -> str:
        """The scope as the policies believe it, in one transaction of one backend."""
        payload = json.dumps([pid, moment, scope.tenant_id, scope.user_id], ensure_ascii=False)
        inner = hashlib.sha256(self.inner_key + payload.encode()).digest()
        return f"{hashlib.sha256(self.outer_key + inner).hexdigest()}:{payload}"


@dataclass(frozen=True, slots=True)
class _Access:
    credentials: _Credentials
    pool: asyncpg.Pool[asyncpg.Record]


class SqlSandbox:
    """Runs SELECTs of users on a small pool of its own, which is opened by the first of them."""

    def __init__(self, database: Database, settings: Settings, gate: StatementCheck | None) -> None:
        """`gate` is `rem.query.verbs.sql_guard.check_select`. None, for tests, leaves all to the database."""
        self._database = database
        self._postgres = settings.postgres
        self._settings = settings.sql
        self._gate = gate
        self._lock = asyncio.Lock()
        self._access: _Access | None = None
        self._readable: ReadableSchema | None = None
        self._retired: list[asyncio.Task[None]] = []

    async def select(self, scope: Scope, statement: str, *, limit: int | None = None) -> SelectResult:
        """The rows of one SELECT in a scope, at most `limit` and what the settings allow."""
        _refuse_unsendable(statement)
        if limit is not None and limit < 1:
            raise InvalidInputError(f"The limit is {limit}: it must be at least 1.")
        most = min(limit or self._settings.max_rows, self._settings.max_rows)
        access = await self._opened()
        await self._check(statement)
        started = time.perf_counter()
        try:
            lines = await self._run(access, scope, statement, most + 1)
        except _StaleError as stale:
            access = await self._renewed(access, stale)
            try:
                lines = await self._run(access, scope, statement, most + 1)
            except _StaleError as error:
                raise error.meaning from error
        return _selection(lines, most, self._settings.max_bytes, (time.perf_counter() - started) * 1000)

    async def close(self) -> None:
        """Give the connections back to the server."""
        async with self._lock:
            access, self._access = self._access, None
        if access is not None:
            await access.pool.close()
        await asyncio.gather(*self._retired)

    async def find_security_gaps(self) -> list[str]:
        """What this server leaves to the gate alone; an error if it cannot run SELECTs of users at all."""
        await self.select(Scope(), "SELECT 1")
        access = await self._opened()
        async with self._database.connection() as connection:
            gaps = await connection.fetch(query("sandbox", "gaps"), access.credentials.role_name)
        return [gap for (gap,) in gaps]

    async def _run(self, access: _Access, scope: Scope, statement: str, rows: int) -> list[str | None]:
        seconds = self._settings.timeout_seconds
        async with _leased(access.pool) as connection:
            is_deaf = False
            transaction = connection.transaction(readonly=True)
            await transaction.start()
            try:
                moment = await connection.fetchval(query("sandbox", "moment"))
                signed = access.credentials.sign(scope, connection.get_server_pid(), moment)
                found = await connection.fetch(
                    query("sandbox", "run"), signed, statement, rows, self._settings.max_bytes
                )
            except (asyncpg.PostgresError, TimeoutError) as error:
                is_deaf = isinstance(error, TimeoutError)
                if is_stale_access_error(error):
                    raise _StaleError(to_select_error(error, seconds)) from error
                raise to_select_error(error, seconds) from error
            finally:
                # Never a commit: also a setting or a message of the query's would be kept by it.
                if is_deaf:
                    # The server has not noticed the end of its time: it would not answer a rollback either.
                    connection.terminate()
                else:
                    await transaction.rollback()
        return [line for (line,) in found]

    async def _check(self, statement: str) -> None:
        if self._gate is None:
            return
        if self._readable is None:
            async with self._database.connection() as connection:
                functions = await connection.fetch(query("sandbox", "functions"))
                tables = await _read_tables(connection)
            self._readable = ReadableSchema(tables, frozenset(name for (name,) in functions))
        try:
            await asyncio.to_thread(self._gate, statement, self._readable)
        except InvalidInputError:
            async with self._database.connection() as connection:
                tables = await _read_tables(connection)
            if tables == self._readable.tables:
                raise
            # It may name a type that has been registered since.
            self._readable = ReadableSchema(tables, self._readable.functions)
            await asyncio.to_thread(self._gate, statement, self._readable)

    async def _opened(self) -> _Access:
        if self._access is None:
            async with self._lock:
                if self._access is None:
                    self._access = await self._open()
        return self._access

    async def _renewed(self, stale: _Access, error: _StaleError) -> _Access:
        """Another access, if the login or the keys have been replaced; else the error was the query's own."""
        async with self._lock:
            if self._access is stale:
                async with self._database.connection() as connection:
                    if await self._credentials(connection) == stale.credentials:
                        raise error.meaning from error
                self._access = await self._open()
                # Others may be in the middle of a query there: they end it, or find out the same.
                self._retired.append(asyncio.create_task(stale.pool.close()))
            elif self._access is None:
                self._access = await self._open()
            return self._access

    async def _open(self) -> _Access:
        async with self._database.connection() as connection:
            credentials = await self._credentials(connection)
            await self._refuse_unsafe(connection, credentials.role_name)
            if self._database.is_embedded and not await connection.fetchval(query("sandbox", "is_closed")):
                await connection.execute(query("sandbox", "close_catalog"))

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

    async def _credentials(self, connection: Connection) -> _Credentials:
        """The login and the keys, as only the owner of the schema can read them."""
        given = self._postgres.sql_connection_string
        if given is not None and not self._database.is_embedded:
            login = {"dsn": given.get_secret_value().strip()}
            role_name = await self._adopt(connection, login)
        else:
            try:
                row = await connection.fetchrow(query("sandbox", "login"))
            except (asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError) as error:
                raise await self._cannot_create_role(connection, error) from error
            except asyncpg.UndefinedFunctionError as error:
                raise MigrationError(f"The schema is not complete ({error.args[0]}): run `rem db migrate`.") from error
            assert row is not None  # noqa: S101  # a function gives one row
            role_name = row["role_name"]
            login = {"user": role_name, "password": row["role_password"]}
        keys = await connection.fetchrow(query("sandbox", "keys"))
        assert keys is not None  # noqa: S101  # the migration has put it there
        return _Credentials(role_name, login, keys["inner_key"], keys["outer_key"])

    async def _adopt(self, connection: Connection, login: Mapping[str, Any]) -> str:
        """Let the role that the settings name see what the SQL verb shows; its name."""
        own = await self._log_in(login)
        try:
            role_name = str(await own.fetchval("SELECT current_user"))
        finally:
            await own.close()
        await self._refuse_unsafe(connection, role_name)
        if not self._database.server_info.is_replica:
            await connection.execute(query("sandbox", "adopt"), role_name)
        return role_name

    async def _refuse_unsafe(self, connection: Connection, role_name: str) -> None:
        faults = [fault for (fault,) in await connection.fetch(query("sandbox", "faults"), role_name)]
        if faults:
            raise DatabaseUnsupportedError(
                f"The role {role_name} must not run SELECTs of users: {'; '.join(faults)}. Take that from the role, or "
                "let REM create one (docs/sql.md)."
            )

    async def _cannot_create_role(
        self, connection: Connection, error: asyncpg.PostgresError
    ) -> DatabaseUnsupportedError:
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            return DatabaseUnsupportedError(
                "The SQL verb has no login role yet, and a replica cannot make one: run `rem doctor` on the primary."
            )
        role_name = await connection.fetchval(query("sandbox", "role_name"))
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
                f"The SQL verb's own role cannot log in. {error} Let it in by pg_hba.conf and, if there is one, by the "
                "connection pooler, or set POSTGRES__SQL_CONNECTION_STRING."
            ) from error

    async def _connect(self, credentials: _Credentials, **kwargs: Any) -> asyncpg.Connection[asyncpg.Record]:
        milliseconds = str(max(1, round(self._settings.timeout_seconds * 1000)))
        return await self._log_in(
            {
                **credentials.login,
                # Every statement is described anew: what one user ran leaves nothing for the next.
                "statement_cache_size": 0,
                "command_timeout": self._settings.timeout_seconds + _GRACE_SECONDS,
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


class _StaleError(Exception):
    """The signature was not believed, or the login refused: by what was read too long ago, or as it is meant."""

    def __init__(self, meaning: RemError) -> None:
        super().__init__(str(meaning))
        self.meaning = meaning


class _SandboxConnection(asyncpg.Connection):
    def get_reset_query(self) -> str:
        """Nothing of one query is there for the next, not even what the walls should have kept out."""
        return "DISCARD ALL"


@asynccontextmanager
async def _leased(pool: asyncpg.Pool[asyncpg.Record]) -> AsyncIterator[Connection]:
    try:
        lease = await pool.acquire(timeout=_QUEUE_SECONDS)
    except TimeoutError as error:
        raise QueryLimitError("Too many SQL queries are running: try again in a moment.") from error
    except DatabaseUnavailableError as error:
        raise _StaleError(error) from error
    except DRIVER_ERRORS as error:
        raise to_rem_error(error) from error
    try:
        yield lease
    except DRIVER_ERRORS as error:
        raise to_rem_error(error) from error
    finally:
        await asyncio.shield(_give_back(pool, lease))


async def _give_back(pool: asyncpg.Pool[asyncpg.Record], lease: Any) -> None:
    try:
        await pool.release(lease, timeout=_GRACE_SECONDS)
    except DRIVER_ERRORS:
        # It is broken, so the pool has thrown it away and makes another.
        lease.terminate()


async def _read_tables(connection: Connection) -> dict[str, tuple[str, ...]]:
    rows = await connection.fetch(query("sandbox", "tables"))
    return {row["table_name"]: tuple(row["columns"]) for row in rows}


def _refuse_unsendable(statement: str) -> None:
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


def _selection(lines: list[str | None], most: int, max_bytes: int, milliseconds: float) -> SelectResult:
    is_cut_off = len(lines) > most or (bool(lines) and lines[-1] is None)
    rows = [_row(line) for line in lines[:most] if line is not None]
    if is_cut_off and not rows:
        raise QueryLimitError(f"The first row alone has more than {max_bytes:,} bytes: select less of it.")
    return SelectResult(rows, is_cut_off, milliseconds)


def _row(line: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(line, object_pairs_hook=_object, parse_int=_integer, parse_float=_number)
    return row


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Columns of the same name (`SELECT * FROM a JOIN b`) are told apart by a number."""
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


def _integer(text: str) -> int | str:
    """An integer that every reader of JSON takes; what is longer stays the text that it is."""
    if len(text) > 20:
        return text
    value = int(text)
    return value if -_INT64 <= value < _INT64 else text


def _number(text: str) -> float | str:
    """A float, unless it would lose digits."""
    value = float(text)
    return value if Decimal(repr(value)) == Decimal(text) else text
