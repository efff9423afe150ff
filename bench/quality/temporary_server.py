"""A temporary PostgreSQL server for a benchmark."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import SecretStr

from rem.db.database import Database, migrate_schema
from rem.db.embedded.server import EmbeddedServer
from rem.db.preflight import read_server_info
from rem.settings import Settings

IDLE_TIMEOUT_SECONDS = 60.0
"""The server stops this long after a benchmark that was killed."""


@contextmanager
def temporary_server(settings: Settings, on_progress: Callable[[str], None]) -> Iterator[Settings]:
    """Start a server in a temporary folder. Yield the settings with its address; models still come from REM_HOME."""
    with tempfile.TemporaryDirectory(prefix="rem-bench-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedServer(
            Path(folder),
            run_as=settings.postgres.run_as,
            idle_timeout_seconds=IDLE_TIMEOUT_SECONDS,
            on_progress=on_progress,
        )
        try:
            address = SecretStr(server.ensure_running().dsn())
            postgres = settings.postgres.model_copy(
                update={
                    "connection_string": address,
                    "direct_connection_string": None,
                    "replica_connection_string": None,
                    "sql_connection_string": None,
                }
            )
            yield settings.model_copy(update={"postgres": postgres})
        finally:
            server.stop()


async def prepare_schema(settings: Settings) -> None:
    """Migrate the schema of a temporary server."""
    async with Database(settings).unpooled_connection() as connection:
        await migrate_schema(connection, settings, await read_server_info(connection))
