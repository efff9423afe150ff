"""Database: the connection pool of the process, on your own PostgreSQL server or on the embedded one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar
from uuid import UUID

import asyncpg
import orjson
from loguru import logger

from rem.db.addresses import (
    describe_connection_string,
    explain_connect_error,
    explain_unreadable_string,
    get_direct_connection_string,
    read_connection_string,
    split_hosts,
)
from rem.db.derived_ids import DerivedIds
from rem.db.driver_errors import ASYNCPG_ERRORS, DRIVER_ERRORS, to_rem_error, translate_driver_errors
from rem.db.hash_secret import PLAIN_CONNECTION_NAME, open_sealer, refuse_encrypted_texts
from rem.db.migrator import MAX_LOCK_WAIT_SECONDS, Migrator, change_schema
from rem.db.partitions import count_partitions
from rem.db.pooler import UnpreparedConnection, refuse_encryption, require_role_defaults, set_role_defaults
from rem.db.preflight import ServerInfo, check_requirements, read_server_info
from rem.db.replica import Replica, ReplicaUnusableError
from rem.db.sealed_rows import OpeningConnection, decode_json, decode_jsonb
from rem.db.sql import query
from rem.errors import DatabaseUnavailableError, InvalidInputError, MigrationError
from rem.privacy.policy import PrivacyPolicy
from rem.settings import Settings

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from rem.db.embedded.backend import BackendProcess
    from rem.db.embedded.server import EmbeddedServer, ServerStatus
    from rem.encryption.sealed_values import Sealer

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]

R = TypeVar("R")
Progress: TypeAlias = Callable[[str], None]
ConnectionTarget: TypeAlias = Literal["server", "pooler", "replica"]
CONNECT_RETRY_SECONDS = 0.1
POOLER_SETTINGS = ("application_name", "timezone")
"""The settings that PgBouncer sets for each transaction of a client."""
AFTER_START_SECONDS = 1.0
"""Time for a connection after the embedded server was started, even if the connect timeout is over."""
MAX_CANCEL_SECONDS = 5.0
"""Time that a cancelled statement has to end. After that, its connection is given up."""
_NOT_STARTED_ERRORS = (
    ConnectionError,
    FileNotFoundError,
    asyncpg.CannotConnectNowError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.TargetServerAttributeNotMatched,
)


class Executor(Protocol):
    """Runs statements: the pool, or one transaction."""

    @property
    def embedding_dimension(self) -> int:
        """Return the number of dimensions of the vectors of this database."""

    @property
    def derived_ids(self) -> DerivedIds:
        """Return the maker of the ids that follow from a name."""

    @property
    def privacy(self) -> PrivacyPolicy:
        """Return the policy that every text obeys before it is stored."""

    @property
    def sealer(self) -> Sealer | None:
        """Return what encrypts and decrypts texts; None if nothing is encrypted."""

    @property
    def max_waiting_jobs(self) -> int:
        """Return how many jobs of one owner may wait."""

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Yield a connection for a few statements. Errors of the driver become errors of REM."""

    async def read(self, work: Callable[[Connection], Awaitable[R]]) -> R:
        """Return the result of `work`, which only reads and may run twice. A replica may be used for it."""

    def transaction(self) -> AbstractAsyncContextManager[Executor]:
        """Yield an executor in one transaction, or in a savepoint of the current one."""

    def snapshot(self) -> AbstractAsyncContextManager[Executor]:
        """Yield an executor in a read-only transaction. All its reads see the same state."""


class Database:
    """The database of REM. Open it with `Database.open`."""

    def __init__(self, settings: Settings, on_progress: Progress | None = None) -> None:
        self._settings = settings
        self._on_progress = on_progress or _log_progress
        self._embedded = create_embedded_server(settings, self._on_progress)
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._replica: Replica | None = None
        self._server_info: ServerInfo | None = None
        self._derived_ids: DerivedIds | None = None
        self._last_hosts: dict[str, str] = {}
        """The host of each connection string that was connected to last."""
        self._has_partitions = False
        self.sealer: Sealer | None = None
        self.privacy = PrivacyPolicy.from_settings(settings.privacy)
        self.max_waiting_jobs = settings.worker.max_waiting

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, on_progress: Progress | None = None) -> AsyncIterator[Database]:
        """Yield the migrated database. Start the embedded server if necessary, and leave it running."""
        database = cls(settings, on_progress)
        try:
            await database.start()
            yield database
        finally:
            await database.close()

    @property
    def embedding_dimension(self) -> int:
        """Return the number of dimensions of the vectors of this database."""
        return self._settings.embedding.dimension

    @property
    def derived_ids(self) -> DerivedIds:
        """Return the maker of the ids that follow from a name."""
        if self._derived_ids is None:
            raise DatabaseUnavailableError("The database is not open.")
        return self._derived_ids

    @property
    def is_embedded(self) -> bool:
        """Return True if REM runs the server itself."""
        return self._embedded is not None

    def embedded_status(self) -> ServerStatus | None:
        """Return the status of the embedded server, or None for your own server."""
        return self._embedded.status() if self._embedded else None

    def erase_server_log(self) -> None:
        """Empty the log of the embedded server. The log of your own server is yours."""
        if self._embedded is not None:
            self._embedded.erase_log()

    def describe_full_disk(self) -> str:
        """Return a sentence if the disk of the embedded server is almost full, otherwise an empty text."""
        if self._embedded is None:
            return ""
        from rem.db.embedded.diagnostics import describe_full_disk

        return describe_full_disk(self._embedded.data_dir).strip()

    def describe_disk_encryption(self) -> str:
        """Return a few words on the encryption of the embedded server's disk; nothing for your own server."""
        if self._embedded is None:
            return ""
        from rem.db.embedded.disk_encryption import describe_disk_encryption

        return describe_disk_encryption(self._embedded.data_dir)

    def find_backend(self, pid: int) -> BackendProcess | None:
        """Return the process of a connection to the embedded server. Return None for your own server."""
        return self._embedded.find_backend(pid) if self._embedded else None

    @property
    def server_info(self) -> ServerInfo:
        """Return the properties of the server, as read when the database was opened."""
        if self._server_info is None:
            raise DatabaseUnavailableError("The database is not open.")
        return self._server_info

    async def start(self) -> None:
        """Check the server, migrate the schema of an embedded server, and open the pool."""
        async with self.unpooled_connection() as connection:
            self._server_info = await read_server_info(connection)
            check_requirements(self._server_info)
            await self._migrate_if_embedded(connection)
            # The migration may have created the extensions.
            self._server_info = await read_server_info(connection)
            self._derived_ids = DerivedIds(await connection.fetchval("SELECT id_key FROM rem.installation"))
            if self._uses_pooler:
                await refuse_encryption(connection, self._settings.encryption)
            self._has_partitions = bool(await count_partitions(connection))
            self.sealer = await open_sealer(connection, self._settings.encryption)
            if self.sealer is not None:
                self.privacy = self.privacy.refusing_sealed_values()
        with translate_driver_errors():
            self._pool = await self._create_pool(
                self._connect_for_pool, self._init_connection, self._settings.postgres.pool_min_size
            )
        if self._settings.postgres.uses_replica and not self._server_info.is_replica:
            await self._open_replica()

    async def _create_pool(self, connect: Any, init: Any, min_size: int) -> asyncpg.Pool[asyncpg.Record]:
        return await asyncpg.create_pool(
            min_size=min_size,
            max_size=max(self._settings.postgres.pool_max_size, min_size),
            connect=connect,
            init=init,
            connection_class=self._get_connection_class(),
        )

    async def _open_replica(self) -> None:
        """Open the pool of the replica. It may be down."""
        async with self.connection() as connection:
            if await connection.fetch(query("db/migrations", "kv_tables"), "u"):
                raise MigrationError(
                    "The replica does not have kv_store, which is not in the WAL: run `rem db migrate`."
                )
        pool = await self._create_pool(self._connect_to_replica, self._init_replica_connection, 0)
        address = describe_connection_string(self._replica_connection_string)
        self._replica = Replica(address, pool, self._connect_to_replica, self.connection)
        await self._replica.start()

    async def close(self) -> None:
        """Close all connections."""
        if self._replica is not None:
            await self._replica.close()
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Yield a connection of the pool. Errors of the driver become errors of REM."""
        return _PooledLease(self.pool)

    async def read(self, work: Callable[[Connection], Awaitable[R]]) -> R:
        """Return the result of `work`, which only reads and may run twice, on the replica if that is up to date."""
        if self._replica is not None:
            with suppress(ReplicaUnusableError):
                return await self._replica.read(work)
        async with _PooledLease(self.pool) as connection:
            return await work(connection)

    @property
    def replica(self) -> Replica | None:
        """Return the replica of the settings."""
        return self._replica

    @property
    def pool(self) -> asyncpg.Pool[asyncpg.Record]:
        """Return the pool of the driver, for callers that need its interface."""
        if self._pool is None:
            raise DatabaseUnavailableError("The database is not open: use `async with Rem.open() as rem:`.")
        return self._pool

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Executor]:
        """Yield an executor in one transaction. An error in the block undoes all its writes."""
        async with _PooledLease(self.pool, ASYNCPG_ERRORS) as connection, connection.transaction():
            yield _TransactionExecutor(connection, self)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Executor]:
        """Yield an executor in a read-only transaction. All its reads see the same state."""
        async with (
            _PooledLease(self.pool, ASYNCPG_ERRORS) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield _TransactionExecutor(connection, self)

    @asynccontextmanager
    async def unpooled_connection(self, target: ConnectionTarget = "server") -> AsyncIterator[Connection]:
        """Yield a connection outside the pool, for work before the schema is checked, or with its own session.

        It leads to the server itself, or to the connection pooler or the replica of the settings.
        """
        connect = {"server": self._connect, "pooler": self._connect_to_pooler, "replica": self._connect_to_replica}
        with translate_driver_errors():
            connection = await connect[target]()
            try:
                yield connection
            finally:
                await connection.close(timeout=5)

    async def connect_as(self, login: Mapping[str, Any], **kwargs: Any) -> asyncpg.Connection[asyncpg.Record]:
        """Connect to the same database as another role. `login` has its user and password, or a dsn."""
        return await self._connect(**login, **kwargs)

    async def _migrate_if_embedded(self, connection: Connection) -> None:
        migrator = Migrator(connection, self.server_info.search_path)
        if await migrator.is_current():
            return
        if not self.is_embedded:
            raise MigrationError("The schema of the database does not fit this version of REM: run `rem db migrate`.")
        self._on_progress("Preparing the schema ...")
        await migrate_schema(connection, self._settings, self.server_info, on_progress=self._on_progress)

    def _get_connection_class(self) -> type[asyncpg.Connection[asyncpg.Record]]:
        if self._uses_pooler and not self._settings.postgres.prepared_statements:
            return UnpreparedConnection
        if self.sealer is None:
            return _PooledConnection
        return type("_OpeningConnection", (OpeningConnection,), {"sealer": self.sealer})

    async def _connect_for_pool(self, *_args: Any, **kwargs: Any) -> asyncpg.Connection[asyncpg.Record]:
        if self._uses_pooler:
            return await self._connect_to_pooler(**kwargs)
        return await self._connect(**kwargs, server_settings=self._pool_settings())

    async def _connect_to_replica(self, *_args: Any, **kwargs: Any) -> asyncpg.Connection[asyncpg.Record]:
        """Connect without waiting: the primary can answer instead."""
        options = {"dsn": self._replica_connection_string, "server_settings": self._pool_settings(), **kwargs}
        return await self._connect_once({**self._address(), **options})

    @property
    def _replica_connection_string(self) -> str:
        return read_connection_string(self._settings.postgres.replica_connection_string)

    def _pool_settings(self) -> dict[str, str]:
        if self.sealer is None:
            return {**self._session_settings(), "application_name": PLAIN_CONNECTION_NAME}
        # The search index holds keyed hashes of words. The connections of the SQL verb do not get the key.
        return {**self._session_settings(), "rem.word_key": self.sealer.word_key}

    @property
    def _uses_pooler(self) -> bool:
        return self._settings.postgres.uses_pooler

    async def _connect_to_pooler(self, **kwargs: Any) -> asyncpg.Connection[asyncpg.Record]:
        settings = {name: value for name, value in self._session_settings().items() if name in POOLER_SETTINGS}
        options = {
            "dsn": read_connection_string(self._settings.postgres.connection_string),
            "server_settings": settings,
            **kwargs,
        }
        if not self._settings.postgres.prepared_statements:
            options["statement_cache_size"] = 0
        return await self._connect(**options)

    def _session_settings(self) -> dict[str, str]:
        search_path = {"search_path": self._server_info.search_path} if self._server_info else {}
        # To plan a statement again for each tenant takes longer than to run it. The executor skips other partitions.
        generic_plans = {"plan_cache_mode": "force_generic_plan"} if self._has_partitions else {}
        return {"application_name": "rem", "timezone": "UTC", "jit": "off", **search_path, **generic_plans}

    async def _connect(self, **kwargs: Any) -> asyncpg.Connection[asyncpg.Record]:
        """Connect. Wait for a server that is starting, and start the embedded server if it is down."""
        deadline = asyncio.get_running_loop().time() + self._settings.postgres.connect_timeout_seconds
        while True:
            try:
                return await self._connect_once({**self._address(), **kwargs})
            except _NOT_STARTED_ERRORS as error:
                if self._embedded is not None:
                    await asyncio.to_thread(self._embedded.ensure_running)
                    # A first start under load may take long, and has its own time limit.
                    deadline = max(deadline, asyncio.get_running_loop().time() + AFTER_START_SECONDS)
                if asyncio.get_running_loop().time() > deadline:
                    raise DatabaseUnavailableError(
                        f"No PostgreSQL server answers at {self._describe(kwargs)} ({error}): is it running?"
                    ) from error
                await asyncio.sleep(CONNECT_RETRY_SECONDS if self._embedded is None else 0)
            except ValueError as error:
                # What could not be read may be a part of the password.
                raise explain_unreadable_string(error) from None
            except (asyncpg.PostgresError, OSError) as error:
                explained = explain_connect_error(error, self._describe(kwargs))
                if explained is None:
                    raise
                raise explained from error

    async def _connect_once(self, options: dict[str, Any]) -> asyncpg.Connection[asyncpg.Record]:
        """Connect to the first host that fits. Try the one first that was right the last time."""
        if "dsn" not in options:
            return await asyncpg.connect(**options)
        dsn: str = options["dsn"]
        hosts = sorted(split_hosts(dsn), key=lambda host: host != self._last_hosts.get(dsn))
        # The driver would wait for the first host as long as it may wait for all.
        options = {**options, "timeout": options["timeout"] / len(hosts)}
        for host in hosts[:-1]:
            with suppress(*_NOT_STARTED_ERRORS, OSError):
                return await self._connect_to_host(host, options)
        return await self._connect_to_host(hosts[-1], options)

    async def _connect_to_host(self, host: str, options: dict[str, Any]) -> asyncpg.Connection[asyncpg.Record]:
        connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(**{**options, "dsn": host})
        self._last_hosts[options["dsn"]] = host
        return connection

    def _address(self) -> dict[str, Any]:
        common = {
            "timeout": self._settings.postgres.connect_timeout_seconds,
            "server_settings": self._session_settings(),
        }
        if self._embedded is None:
            return {"dsn": get_direct_connection_string(self._settings.postgres), **common}
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

    def get_connection_string(self) -> str:
        """Return the address of the server with its password, for programs of PostgreSQL. The server must run."""
        if self._embedded is None:
            return get_direct_connection_string(self._settings.postgres)
        return self._embedded.ensure_running().dsn()

    def describe_address(self) -> str:
        """Return the address of the server for messages, without its password."""
        if self._embedded is not None:
            return f"the embedded server in {self._embedded.data_dir}"
        return self._describe({"dsn": read_connection_string(self._settings.postgres.connection_string)})

    def _describe(self, options: Mapping[str, Any]) -> str:
        """Return the address of a connection for messages, without its password. `options` may contain a dsn."""
        if self._embedded is not None:
            return self.describe_address()
        return describe_connection_string(options.get("dsn") or get_direct_connection_string(self._settings.postgres))

    async def _set_codecs(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        await connection.set_type_codec(
            "jsonb",
            encoder=_encode_jsonb,
            decoder=_decode_jsonb if self.sealer is None else decode_jsonb,
            schema="pg_catalog",
            format="binary",
        )
        await connection.set_type_codec(
            "json",
            encoder=orjson.dumps,
            decoder=orjson.loads if self.sealer is None else decode_json,
            schema="pg_catalog",
            format="binary",
        )

    async def _init_replica_connection(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        await self._set_codecs(connection)
        if self.sealer is None:
            await refuse_encrypted_texts(connection)

    async def _init_connection(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        await self._init_replica_connection(connection)
        if self._uses_pooler:
            await require_role_defaults(connection, self.server_info)
        # A crash of PostgreSQL closes every connection, so a check of each new one notices every crash.
        if self.server_info.is_replica or await connection.fetchval("SELECT rem.rem_kv_store_is_complete()"):
            return
        if await connection.fetchval("SELECT rem.rem_fix_kv_store()"):
            logger.warning("kv_store was empty after a crash of PostgreSQL. It was rebuilt from the tables.")


async def migrate_schema(
    connection: Connection,
    settings: Settings,
    facts: ServerInfo,
    partitions: int | None = None,
    *,
    on_progress: Progress | None = None,
    max_wait_seconds: float = MAX_LOCK_WAIT_SECONDS,
) -> list[str]:
    """Migrate the schema to the version of this REM, and return the names of the applied migrations.

    Divide the large tables into `partitions` (None: leave them as they are).
    """
    migrator = Migrator(connection, facts.search_path)

    # One transaction holds the lock of the migrator to the end: two concurrent CREATE INDEX IF NOT EXISTS collide.
    async def change() -> list[str]:
        applied = await migrator.migrate(partitions=partitions)
        await connection.execute(query("db/migrations", "index_embeddings"), settings.embedding.dimension)
        await migrator.set_kv_logged(settings.postgres.needs_logged_kv_store)
        if settings.postgres.uses_pooler:
            await set_role_defaults(connection, await read_server_info(connection))
        return applied

    return await change_schema(connection, change, on_progress, max_wait_seconds)


class _PooledConnection(asyncpg.Connection):
    def get_reset_query(self) -> str:
        """Return no reset query: settings are made at connect time or LOCAL to a transaction. Saves a round trip."""
        return ""


_connection_turns: ContextVar[asyncio.Semaphore | None] = ContextVar("connection_turns", default=None)


@contextmanager
def taking_turns(turns: asyncio.Semaphore | None) -> Iterator[None]:
    """Let each use of a connection in the block, and in tasks that begin in it, take a turn; None: take no turns."""
    before = _connection_turns.get()
    _connection_turns.set(turns)
    try:
        yield
    finally:
        _connection_turns.set(before)


class _PooledLease:
    """Borrows a connection from the pool. It is a class, because a generator costs a tenth of a lookup."""

    __slots__ = ("_connection", "_errors", "_pool", "_turns")

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], errors: tuple[type[Exception], ...] = DRIVER_ERRORS) -> None:
        self._pool = pool
        # If code of the caller runs in the block, an OSError may come from that code.
        self._errors = errors

    async def __aenter__(self) -> Connection:
        self._turns = _connection_turns.get()
        if self._turns is not None:
            await self._turns.acquire()
            # Who borrows a second one meanwhile would wait for itself.
            _connection_turns.set(None)
        try:
            self._connection = await self._pool.acquire()
        except BaseException as error:
            self._end_turn()
            if isinstance(error, DRIVER_ERRORS):
                raise to_rem_error(error) from error
            raise
        return self._connection

    def _end_turn(self) -> None:
        if self._turns is not None:
            _connection_turns.set(self._turns)
            self._turns.release()

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._pool.release(self._connection, timeout=None if error is None else MAX_CANCEL_SECONDS)
        except DRIVER_ERRORS as release_error:
            if error is None:
                raise to_rem_error(release_error) from release_error
        finally:
            self._end_turn()
        if isinstance(error, self._errors):
            raise to_rem_error(error) from error


class _TransactionExecutor:
    """An executor whose statements all run in one transaction."""

    def __init__(self, connection: Connection, database: Database) -> None:
        self._connection = connection
        self._task = asyncio.current_task()
        self.embedding_dimension = database.embedding_dimension
        self.derived_ids = database.derived_ids
        self.privacy = database.privacy
        self.sealer = database.sealer
        self.max_waiting_jobs = database.max_waiting_jobs

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        if asyncio.current_task() is not self._task:
            raise InvalidInputError(
                "A transaction belongs to the task that began it: await its calls one after another, without gather."
            )
        with translate_driver_errors():
            # A savepoint: after a failed statement PostgreSQL would turn the final COMMIT into a silent ROLLBACK.
            async with self._connection.transaction():
                yield self._connection

    async def read(self, work: Callable[[Connection], Awaitable[R]]) -> R:
        async with self.connection() as connection:
            return await work(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Executor]:
        async with self._connection.transaction():
            yield self

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Executor]:
        yield self


def create_embedded_server(settings: Settings, on_progress: Progress) -> EmbeddedServer | None:
    """Return the embedded server, or None if the settings name your own server."""
    if settings.postgres.connection_string is not None:
        return None
    from rem.db.embedded.server import EmbeddedServer

    return EmbeddedServer(
        settings.memory.storage_path or settings.rem_home,
        run_as=settings.postgres.run_as,
        idle_timeout_seconds=settings.postgres.idle_timeout_seconds,
        on_progress=on_progress,
    )


def _log_progress(message: str) -> None:
    logger.info(message)


def _encode_jsonb(value: Any) -> bytes:
    return b"\x01" + orjson.dumps(value, default=_encode_as_text)


def _encode_as_text(value: Any) -> str:
    if isinstance(value, Decimal | UUID):  # the driver's own UUID is a subclass, which orjson does not know
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _decode_jsonb(value: bytes) -> Any:
    return orjson.loads(value[1:])
