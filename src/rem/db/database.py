"""Database: one pool for the life of the process, on the server that the settings name or on the embedded one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import asyncpg
import orjson
from loguru import logger

from rem.db.driver_errors import ASYNCPG_ERRORS, DRIVER_ERRORS, to_rem_error, translate_driver_errors
from rem.db.migrator import Migrator
from rem.db.preflight import ServerInfo, check_requirements, read_server_info
from rem.errors import DatabaseUnavailableError, InvalidInputError, MigrationError, SettingsError
from rem.settings import Settings

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from rem.db.embedded.server import EmbeddedServer, ServerStatus

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]

Progress: TypeAlias = Callable[[str], None]
_RETRY_SECONDS = 0.1
_AFTER_START_SECONDS = 1.0
_CONNECTION_STRING_FORM = (
    "POSTGRES__CONNECTION_STRING must look like postgresql://user:password@host:5432/database, with special characters "
    "of the user and password written as %XX."
)
_NOT_UP_YET = (
    ConnectionError,
    FileNotFoundError,
    asyncpg.CannotConnectNowError,
    asyncpg.ConnectionDoesNotExistError,
)


class Executor(Protocol):
    """Whatever can lend a connection: the pool, or one transaction."""

    @property
    def embedding_dimension(self) -> int:
        """How long the vectors of this database are."""

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for a few statements; the driver's errors come out as REM's."""

    def transaction(self) -> AbstractAsyncContextManager[Executor]:
        """One transaction, or a part of one that can fail alone."""

    def snapshot(self) -> AbstractAsyncContextManager[Executor]:
        """A transaction that only reads, and always the same state."""


class Database:
    """The open database. Make one with `Database.open`."""

    def __init__(self, settings: Settings, on_progress: Progress | None = None) -> None:
        self._settings = settings
        self._on_progress = on_progress or _to_log
        self._embedded = create_embedded_server(settings, self._on_progress)
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._facts: ServerInfo | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, on_progress: Progress | None = None) -> AsyncIterator[Database]:
        """The database, migrated and ready; an embedded server is started if need be and left running."""
        database = cls(settings, on_progress)
        await database.start()
        try:
            yield database
        finally:
            await database.close()

    @property
    def embedding_dimension(self) -> int:
        """How long the vectors of this database are."""
        return self._settings.embedding.dimension

    @property
    def is_embedded(self) -> bool:
        """Whether REM runs the server itself."""
        return self._embedded is not None

    def embedded_status(self) -> ServerStatus | None:
        """The state of the embedded server; None if the settings name another."""
        return self._embedded.status() if self._embedded else None

    @property
    def server_info(self) -> ServerInfo:
        """What the server said of itself when it was opened."""
        if self._facts is None:
            raise DatabaseUnavailableError("The database is not open.")
        return self._facts

    async def start(self) -> None:
        """Check the server, bring the schema up to date, fill the pool."""
        async with self.unpooled_connection() as connection:
            self._facts = await read_server_info(connection)
            check_requirements(self._facts)
            await self._bring_up_to_date(connection)
            # A fresh schema may have brought the extensions along.
            self._facts = await read_server_info(connection)
        with translate_driver_errors():
            self._pool = await asyncpg.create_pool(
                min_size=self._settings.postgres.pool_min_size,
                max_size=max(self._settings.postgres.pool_max_size, self._settings.postgres.pool_min_size),
                connect=self._connect_for_pool,
                init=self._init_connection,
                connection_class=_PooledConnection,
            )

    async def close(self) -> None:
        """Give the connections back to the server."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """A pooled connection; the driver's errors come out as REM's."""
        return _Lease(self.pool)

    @property
    def pool(self) -> asyncpg.Pool[asyncpg.Record]:
        """The pool itself, for who wants the driver's own interface."""
        if self._pool is None:
            raise DatabaseUnavailableError("The database is not open: use `async with Rem.open() as rem:`.")
        return self._pool

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Executor]:
        """One transaction: what is done through the yielded executor happens as a whole or not at all."""
        async with _Lease(self.pool, ASYNCPG_ERRORS) as connection, connection.transaction():
            yield _Pinned(connection, self.embedding_dimension)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Executor]:
        """A transaction that only reads, and always the same state."""
        async with (
            _Lease(self.pool, ASYNCPG_ERRORS) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield _Pinned(connection, self.embedding_dimension)

    @asynccontextmanager
    async def unpooled_connection(self) -> AsyncIterator[Connection]:
        """A connection outside the pool, for what comes before the schema is known to be right."""
        with translate_driver_errors():
            connection = await self._connect()
            try:
                yield connection
            finally:
                await connection.close(timeout=5)

    async def connect_as(self, login: Mapping[str, Any], **kwargs: Any) -> asyncpg.Connection[asyncpg.Record]:
        """A connection of another role to the same database: its user and password, or a connection string."""
        return await self._connect(**login, **kwargs)

    async def _bring_up_to_date(self, connection: Connection) -> None:
        migrator = Migrator(connection, self.server_info.search_path)
        if await migrator.is_current():
            return
        if not self.is_embedded:
            raise MigrationError("The database's schema is not the one this REM needs: run `rem db migrate`.")
        self._on_progress("Preparing the schema ...")
        await migrate_schema(connection, self._settings, self.server_info)

    async def _connect_for_pool(self, *_args: Any, **kwargs: Any) -> asyncpg.Connection[asyncpg.Record]:
        return await self._connect(**kwargs)

    async def _connect(self, **kwargs: Any) -> asyncpg.Connection[asyncpg.Record]:
        """Connect, waiting for a server that is starting; an embedded one that is down is started."""
        deadline = asyncio.get_running_loop().time() + self._settings.postgres.connect_timeout_seconds
        while True:
            try:
                return await asyncpg.connect(**{**self._address(), **kwargs})
            except _NOT_UP_YET as error:
                if self._embedded is not None:
                    await asyncio.to_thread(self._embedded.ensure_running)
                    # It has a time limit of its own, and a first start under load may take long.
                    deadline = max(deadline, asyncio.get_running_loop().time() + _AFTER_START_SECONDS)
                if asyncio.get_running_loop().time() > deadline:
                    raise DatabaseUnavailableError(
                        f"No PostgreSQL server answers at {self.describe_address()} ({error}): is it running?"
                    ) from error
                await asyncio.sleep(_RETRY_SECONDS if self._embedded is None else 0)
            except (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError) as error:
                raise DatabaseUnavailableError(
                    f"The server at {self.describe_address()} refuses the user or password: {error}"
                ) from error
            except asyncpg.InvalidCatalogNameError as error:
                raise DatabaseUnavailableError(
                    f"The server at {self.describe_address()} has no such database: {error}. Create it, or mend the "
                    "connection string."
                ) from error
            except OSError as error:
                raise DatabaseUnavailableError(
                    f"No PostgreSQL server can be reached at {self.describe_address()} ({error}): check the address."
                ) from error
            except asyncpg.ClientConfigurationError as error:
                raise SettingsError(f"{_CONNECTION_STRING_FORM} ({error})") from error
            except ValueError:
                # What could not be read may be a part of the password.
                raise SettingsError(_CONNECTION_STRING_FORM) from None

    def _address(self) -> dict[str, Any]:
        search_path = {"search_path": self._facts.search_path} if self._facts else {}
        common = {
            "timeout": self._settings.postgres.connect_timeout_seconds,
            "server_settings": {"application_name": "rem", "timezone": "UTC", "jit": "off", **search_path},
        }
        if self._embedded is None:
            return {"dsn": _connection_string(self._settings), **common}
        address = self._embedded.address()
        if address is None:
            raise ConnectionError("the embedded server is not running")
        return {
            "host": str(address.socket_dir),
            "port": address.port,
            "user": address.user,
            "database": address.database,
            **common,
        }

    def describe_address(self) -> str:
        """Where the server is, without its password."""
        if self._embedded is not None:
            return f"the embedded server in {self._embedded.data_dir}"
        parts = urlsplit(_connection_string(self._settings))
        host = parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", ["localhost"])[0]
        return f"{host}{parts.path}"

    async def _init_connection(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        await connection.set_type_codec(
            "jsonb", encoder=_encode_jsonb, decoder=_decode_jsonb, schema="pg_catalog", format="binary"
        )
        await connection.set_type_codec(
            "json", encoder=orjson.dumps, decoder=orjson.loads, schema="pg_catalog", format="binary"
        )
        # A crash takes every connection along, so looking once for each new one is looking after every crash.
        if self.server_info.is_replica or await connection.fetchval("SELECT rem.rem_kv_store_is_complete()"):
            return
        if await connection.fetchval("SELECT rem.rem_fix_kv_store()"):
            logger.warning("The key cache was empty after a crash of PostgreSQL; it has been rebuilt from the tables.")


async def migrate_schema(connection: Connection, settings: Settings, facts: ServerInfo) -> list[str]:
    """Bring the schema to the version of this REM; the names of the migrations that were applied."""
    migrator = Migrator(connection, facts.search_path)
    # One transaction, so that the migrator's lock is held to the end: two CREATE INDEX IF NOT EXISTS at once collide.
    async with connection.transaction():
        applied = await migrator.migrate()
        await connection.execute("SELECT rem.rem_index_embeddings($1)", settings.embedding.dimension)
        await migrator.set_kv_logged(settings.postgres.kv_logged)
    return applied


class _PooledConnection(asyncpg.Connection):
    def get_reset_query(self) -> str:
        """Nothing to reset: all settings are made at connecting or LOCAL to a transaction. Saves a round trip."""
        return ""


class _Lease:
    """A connection on loan from the pool. A class, because a generator costs a tenth of a lookup."""

    __slots__ = ("_acquisition", "_errors")

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], errors: tuple[type[Exception], ...] = DRIVER_ERRORS) -> None:
        self._acquisition = pool.acquire()
        # Where the caller's own code runs inside, an OSError may be the caller's.
        self._errors = errors

    async def __aenter__(self) -> Connection:
        try:
            return await self._acquisition.__aenter__()
        except DRIVER_ERRORS as error:
            raise to_rem_error(error) from error

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._acquisition.__aexit__(kind, error, trace)
        except DRIVER_ERRORS as failure:
            raise to_rem_error(failure) from failure
        if isinstance(error, self._errors):
            raise to_rem_error(error) from error


class _Pinned:
    """An executor that is one transaction."""

    def __init__(self, connection: Connection, embedding_dimension: int) -> None:
        self._connection = connection
        self._task = asyncio.current_task()
        self.embedding_dimension = embedding_dimension

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        if asyncio.current_task() is not self._task:
            raise InvalidInputError(
                "A transaction belongs to the task that began it: make its calls one after the other, not by gather."
            )
        with translate_driver_errors():
            # A savepoint: after a failed statement PostgreSQL would turn the final COMMIT into a silent ROLLBACK.
            async with self._connection.transaction():
                yield self._connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Executor]:
        async with self._connection.transaction():
            yield self

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Executor]:
        yield self


def create_embedded_server(settings: Settings, on_progress: Progress) -> EmbeddedServer | None:
    """The server that REM runs itself, unless the settings name another."""
    if settings.postgres.connection_string is not None:
        return None
    from rem.db.embedded.server import EmbeddedServer

    return EmbeddedServer(
        settings.rem_home,
        run_as=settings.postgres.run_as,
        idle_timeout_seconds=settings.postgres.idle_timeout_seconds,
        on_progress=on_progress,
    )


def _connection_string(settings: Settings) -> str:
    assert settings.postgres.connection_string is not None  # noqa: S101  # the callers have looked
    text = settings.postgres.connection_string.get_secret_value().strip()
    scheme, separator, rest = text.partition("://")
    if not separator or scheme.split("+")[0] not in ("postgresql", "postgres") or "#" in rest:
        raise SettingsError(_CONNECTION_STRING_FORM)
    # SQLAlchemy's spelling (postgresql+asyncpg://) means the same.
    return f"postgresql://{rest}"


def _to_log(message: str) -> None:
    logger.info(message)


def _encode_jsonb(value: Any) -> bytes:
    return b"\x01" + orjson.dumps(value, default=_encode_as_text)


def _encode_as_text(value: Any) -> str:
    if isinstance(value, Decimal | UUID):  # the driver's own UUID is a subclass, which orjson does not know
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _decode_jsonb(value: bytes) -> Any:
    return orjson.loads(value[1:])
