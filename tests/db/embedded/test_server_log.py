"""The log of the embedded server contains no values of users, and erasing a user empties it."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from rem.app import Rem
from rem.db.embedded import EmbeddedServer
from rem.models import Resource
from rem.settings import Settings

SECRET = "heliotrope-91"


@pytest.mark.usefixtures("old_home")
async def test_failed_statements_leave_no_values_in_the_log(server: EmbeddedServer, home: Path) -> None:
    connection = await asyncpg.connect(server.ensure_running().dsn())
    failing: list[tuple[str, list[object]]] = [
        (f"SELECT '{SECRET}'::integer", []),
        ("SELECT $1::text::integer", [SECRET]),
        (f"SELECT nothing FROM nowhere -- {SECRET}", []),
        ("INSERT INTO notes VALUES ($1)", [SECRET]),
        ("INSERT INTO notes VALUES ($1)", ["x" * 99 + SECRET]),
        (f"DO $$ BEGIN RAISE EXCEPTION 'about %', '{SECRET}'; END $$", []),
        (f"DO $$ BEGIN RAISE WARNING 'about %', '{SECRET}'; END $$", []),
    ]
    await connection.execute("CREATE TABLE notes (note text UNIQUE CHECK (length(note) < 50))")
    await connection.execute("INSERT INTO notes VALUES ($1)", SECRET)
    failures = 0
    for statement, arguments in failing:
        try:
            await connection.execute(statement, *arguments)
        except asyncpg.PostgresError:
            failures += 1
    await connection.close()
    assert failures == 6
    assert server.stop()
    log = server.log_file.read_text()
    assert SECRET not in log
    assert "ready to accept connections" in log


@pytest.mark.usefixtures("old_home")
async def test_erasing_a_user_empties_the_log(server: EmbeddedServer, home: Path) -> None:
    server.ensure_running()
    older = server.log_file.with_name("server.log.1")
    older.write_text(f"Failing row contains ({SECRET})")
    with server.log_file.open("a") as log:
        log.write(f"Failing row contains ({SECRET})")
    async with Rem.open(Settings(rem_home=home)) as rem:
        await rem.for_user("alice@example.com").store.upsert(Resource(name="Note", content=SECRET))
        await rem.for_user("alice@example.com").erase_user()
    assert SECRET not in server.log_file.read_text()
    assert not older.exists()
    server.stop()
    assert "database system is shut down" in server.log_file.read_text(), "the server writes on after the erasure"
