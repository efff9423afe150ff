"""Where a benchmark runs: on a PostgreSQL server of its own, which is gone afterwards."""

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

_IDLE_SECONDS = 60.0
"""So long the server outlives a benchmark that was killed."""


@contextmanager
def temporary_server(settings: Settings, on_progress: Callable[[str], None]) -> Iterator[Settings]:
    """The settings, but with a database of their own in a temporary folder. Models are still those of REM_HOME."""
    with tempfile.TemporaryDirectory(prefix="rem-bench-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedServer(
            Path(folder), run_as=settings.postgres.run_as, idle_timeout_seconds=_IDLE_SECONDS, on_progress=on_progress
        )
        try:
            address = SecretStr(server.ensure_running().dsn())
            postgres = settings.postgres.model_copy(
                update={"connection_string": address, "sql_connection_string": None}
            )
            yield settings.model_copy(update={"postgres": postgres})
        finally:
            server.stop()


async def prepare_schema(settings: Settings) -> None:
    """Bring the schema of a temporary server up to date."""
    async with Database(settings).unpooled_connection() as connection:
        await migrate_schema(connection, settings, await read_server_info(connection))
