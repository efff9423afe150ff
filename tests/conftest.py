"""One embedded server for the whole run, shared by the workers; each test has a database of its own on it."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import asyncpg
import pytest
from pydantic import SecretStr

from rem.app import Rem
from rem.db.database import Database, migrate_schema
from rem.db.embedded.postmaster import Address
from rem.db.embedded.server import EmbeddedServer
from rem.db.preflight import read_server_info
from rem.db.store import Store
from rem.search.embedder_factory import open_embedder
from rem.settings import EmbeddingSettings, PostgresSettings, Settings

_T = TypeVar("_T")
_HOME = "REM_TEST_HOME"
_TEMPLATE = "rem_template"
_PARTITIONS = "REM_TEST_PARTITIONS"
"""With this number in the environment, the tests run on tables with partitions (`make test-partitioned`)."""
_SHARED_MEMORY = Path("/dev/shm")
_ROOM = 6_000_000_000
_DATABASE_FIXTURES = {"dsn", "empty_dsn", "home"}
_SERVER_TESTS = ("tests/api", "tests/audio", "tests/db/embedded", "tests/deployment", "tests/security", "tests/web")
_BROWSER_TESTS = "tests/web"
_FAST_DATABASE_TESTS = ("tests/models", "tests/query", "tests/search", "tests/tools")
_PROCESS_HELPERS = (
    *("tests.rem_command", "tests.forked_process", "tests.terminal", "tests.bench.bench_command"),
    *("tests.api.live_server", "tests.db.embedded.processes", "rem.db.embedded.server"),
)
_SETTINGS = (
    *(f"{group.upper()}__" for group in Settings.model_fields if not group.startswith("rem_")),
    *("REM_HOME", "REM_CONFIG", "REM_USER", "ENVIRONMENT", "OPENAI_", "ANTHROPIC_"),
)


def pytest_configure(config: pytest.Config) -> None:
    """Start the server in the controlling process, before the workers start."""
    if hasattr(config, "workerinput") or config.option.dist == "no":
        # Until all tests are collected: see pytest_collection_finish, which the controlling process does not call.
        gc.disable()
    # A shell starts a background job with SIGINT ignored, and every process that a test starts would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in os.environ if name.startswith(_SETTINGS)]:
        del os.environ[name]
    # Where it is set, every command that a test runs would compile all that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    os.environ[_HOME] = tempfile.mkdtemp(prefix="rem-tests-", dir=find_memory_folder())
    # Workers make their temporary folders there, too.
    os.environ["PYTEST_DEBUG_TEMPROOT"] = os.environ[_HOME]
    _trust_one_certificate(Path(os.environ[_HOME]) / "certificate.pem")
    asyncio.run(_make_template())


def _trust_one_certificate(path: Path) -> None:
    """Let HTTP clients load one certificate: to load all takes 25 ms for each client, and tests use loopback."""
    if certificates := ssl.create_default_context().get_ca_certs(binary_form=True):
        path.write_text(ssl.DER_cert_to_PEM_cert(certificates[0]))
        os.environ["SSL_CERT_FILE"] = str(path)


def pytest_unconfigure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or _HOME not in os.environ:
        return
    _server().stop()
    shutil.rmtree(os.environ.pop(_HOME), ignore_errors=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the tests of servers if only fast tests run: what they import takes seconds in each worker."""
    name = str(collection_path.relative_to(config.rootpath))
    return True if config.option.markexpr == "not slow" and name.startswith(_SERVER_TESTS) else None


def pytest_collection_finish() -> None:
    """Leave the tests and modules out of the garbage collector, which would look at all of them again and again."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests as slow that start a process or a server, try random input, or need a database, except for queries.

    Mark tests in a browser, too.
    """
    for item in items:
        needs_database = not _DATABASE_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        is_fast = not needs_database or item.nodeid.startswith(_FAST_DATABASE_TESTS)
        is_random = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if not is_fast or is_random or item.nodeid.startswith(_SERVER_TESTS) or _starts_processes(item):
            item.add_marker(pytest.mark.slow)
        if item.nodeid.startswith(_BROWSER_TESTS):
            item.add_marker(pytest.mark.web)


def _starts_processes(item: pytest.Item) -> bool:
    names = vars(getattr(item, "module", None) or object).values()
    return any(value is subprocess or getattr(value, "__module__", "") in _PROCESS_HELPERS for value in names)


def find_memory_folder() -> Path | None:
    """Return a file system in memory, if there is one with room: making a database costs a twentieth there."""
    return _SHARED_MEMORY if _SHARED_MEMORY.is_dir() and shutil.disk_usage(_SHARED_MEMORY).free > _ROOM else None


def _server() -> EmbeddedServer:
    return EmbeddedServer(Path(os.environ[_HOME]), idle_timeout_seconds=600)


@cache
def _address() -> Address:
    """The address of the tests' server, which runs until the end: asking it again for each test would take long."""
    return _server().ensure_running()


def dsn_of(database: str) -> str:
    """The address of a database on the tests' server."""
    address = _address()
    return f"postgresql://{address.user}@/{database}?host={address.socket_dir}&port={address.port}"


def settings_for(dsn: str, **postgres: object) -> Settings:
    """Settings that use a database as an external one."""
    return Settings(
        # The embedder builds its graph there once, for all tests.
        rem_home=Path(os.environ[_HOME]) / "rem",
        postgres=PostgresSettings.model_validate({"connection_string": SecretStr(dsn), **postgres}),
    )


async def _make_template() -> None:
    admin = await asyncpg.connect(dsn_of("postgres"))
    # This server's databases live for one test each; what must survive a crash is tested on servers of its own.
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        await admin.execute(f"ALTER SYSTEM SET {setting} = off")
    await admin.execute("SELECT pg_reload_conf()")
    await admin.execute(f"CREATE DATABASE {_TEMPLATE}")
    await admin.close()
    settings = settings_for(dsn_of(_TEMPLATE))
    async with Database(settings).unpooled_connection() as connection:
        partitions = int(os.environ[_PARTITIONS]) if os.environ.get(_PARTITIONS) else None
        await migrate_schema(connection, settings, await read_server_info(connection), partitions)


@pytest.fixture(scope="session", autouse=True)
def loaded_model() -> Iterator[None]:
    """Keep the local model in memory, so that the tests of one worker load it once."""
    embedder = open_embedder(Settings(rem_home=Path(os.environ[_HOME]) / "rem"))
    asyncio.run(embedder.embed_one("Load the model."))
    yield
    asyncio.run(embedder.close())


@pytest.fixture
async def empty_dsn() -> AsyncIterator[str]:
    """A database without anything in it."""
    async with fresh_database("template1") as dsn:
        yield dsn


@pytest.fixture
def template() -> str:
    """The database that `dsn` copies. A module whose tests need the same rows overrides it (`filled_template`)."""
    return _TEMPLATE


@pytest.fixture
async def dsn(template: str) -> AsyncIterator[str]:
    """A database with REM's schema and nothing stored."""
    async with fresh_database(template) as dsn:
        yield dsn


@contextmanager
def filled_template(fill: Callable[[Rem], Coroutine[None, None, None]]) -> Iterator[str]:
    """Yield the name of a database that `fill` has filled once, for the fixture `template`: a copy costs less."""

    async def open_and_fill(name: str) -> None:
        async with Rem.open(settings_for(dsn_of(name))) as rem:
            await fill(rem)

    name = _administrator().copy(_TEMPLATE).result()
    asyncio.run(open_and_fill(name))
    yield name
    _administrator().drop(name).result()


class fresh_database:  # noqa: N801  # reads as a statement
    """A database that lives as long as the block."""

    def __init__(self, template: str = _TEMPLATE) -> None:
        self._template = template
        self._name = ""

    async def __aenter__(self) -> str:
        self._name = await asyncio.wrap_future(_administrator().copy(self._template))
        return dsn_of(self._name)

    async def __aexit__(self, *_error: object) -> None:
        await asyncio.wrap_future(_administrator().drop(self._name))


class _Administrator:
    """Creates and drops databases on one connection: a new one for each statement would cost as much as a database.

    The connection lives in a thread of its own, because each test has its own event loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._turn = asyncio.Lock()
        self._next: Future[str] | None = None

    def copy(self, template: str) -> Future[str]:
        """Create a database and return its name. The next copy of REM's template is made while the test runs."""
        if template != _TEMPLATE:
            return self._run(self._copy(template))
        copied = self._next or self._run(self._copy(template))
        self._next = self._run(self._copy(template))
        return copied

    def drop(self, name: str) -> Future[None]:
        """Drop a database, with all connections to it."""
        return self._run(self._execute(f"DROP DATABASE {name} WITH (FORCE)"))

    def close(self) -> None:
        """Close the connection, and end the thread."""
        self._run(self._close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[None, None, _T]) -> Future[_T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _copy(self, template: str) -> str:
        name = f"test_{uuid4().hex}"
        await self._execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return name

    async def _execute(self, statement: str) -> None:
        async with self._turn:
            if self._connection is None:
                self._connection = await asyncpg.connect(dsn_of("postgres"))
            await self._connection.execute(statement)

    async def _close(self) -> None:
        async with self._turn:
            if self._connection is not None:
                await self._connection.close()


@cache
def _administrator() -> _Administrator:
    return _Administrator()


@pytest.fixture(scope="session", autouse=True)
def administrator() -> Iterator[None]:
    """Close the connection that creates the databases, after the last test."""
    yield
    if _administrator.cache_info().currsize:
        _administrator().close()


@pytest.fixture
def settings(dsn: str) -> Settings:
    """Settings for the test's own database."""
    return settings_for(dsn)


@pytest.fixture
async def rem(settings: Settings) -> AsyncIterator[Rem]:
    """An open REM on the test's own database."""
    async with Rem.open(settings) as rem:
        yield rem


@pytest.fixture
def alice(rem: Rem) -> Store:
    """Alice's memory."""
    return rem.for_user("alice@example.com").store


@pytest.fixture
def bob(rem: Rem) -> Store:
    """Bob's memory."""
    return rem.for_user("bob@example.com").store


@pytest.fixture
def shared(rem: Rem) -> Store:
    """What the tenant shares."""
    return rem.for_user().store


@pytest.fixture
async def sql(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A plain connection to the test's own database, past all of REM."""
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "rem, public"})
    yield connection
    await connection.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A REM_HOME of the test's own; its server, if it has one, is stopped at the end."""
    home = tmp_path / "home"
    yield home
    if home.exists():
        EmbeddedServer(home).stop()


@pytest.fixture
async def rem_without_embedder(settings: Settings) -> AsyncIterator[Rem]:
    """Open a REM that has no embedder and searches by words alone."""
    async with Rem.open(settings.model_copy(update={"embedding": EmbeddingSettings(provider="none")})) as rem:
        yield rem
