"""Upgrade a deployment without downtime: API and worker of an earlier version go on while the new one migrates.

The earlier versions are commits of this repository, so that what they did is what the tests run against.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from rem.app import Rem
from rem.db.maintenance import check_mirrors
from rem.db.migrator import builtin_migrations
from tests.cli.test_doctor import run_doctor
from tests.cli.test_serve import serving
from tests.conftest import settings_for
from tests.deployment.earlier_version import EarlierVersion, extract_version
from tests.deployment.load import WriteLoad
from tests.jobs.conftest import eventually
from tests.rem_command import rem as run_rem

VERSIONS = {
    "67cc805": "0025_searched_users",
    "a728046": "0024_encryption",
}
"""Commits, and the newest migration of each."""
USER = "alice@example.com"


@pytest.fixture(scope="module", params=VERSIONS)
def earlier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> EarlierVersion:
    """An earlier version of REM."""
    return extract_version(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def settings(empty_dsn: str, earlier: EarlierVersion, tmp_path: Path) -> dict[str, str]:
    """Settings of a database that the earlier version has migrated."""
    settings = {
        "REM_HOME": str(tmp_path / "home"),
        "POSTGRES__CONNECTION_STRING": empty_dsn,
        "WORKER__IN_PROCESS": "false",
        "LLM__DEFAULT_MODEL": "rem:local",
    }
    migrated = earlier.run("db", "migrate", settings=settings)
    assert migrated.returncode == 0, migrated.stderr
    assert VERSIONS[earlier.commit] in migrated.stdout
    return settings


@asynccontextmanager
async def connect(address: str) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a server for Alice."""
    async with httpx.AsyncClient(base_url=address, headers={"X-User-Id": USER}, timeout=120) as client:
        yield client


async def use_memory(client: httpx.AsyncClient, name: str) -> None:
    """Store, look up, search, follow an edge, select, remember and ask, upload a file and wait for its job."""
    edges = [{"dst": f"harbour-{name}", "rel_type": "lies_in"}]
    boat = {"name": f"Boat {name}", "content": f"The mainsail of {name} is torn.", "graph_edges": edges}
    harbour = {"name": f"Harbour {name}", "content": "Where boats lie."}
    for row in (boat, harbour):
        await post(client, "/api/v1/entities/resources", row, status=201)
    for query in (
        f"LOOKUP boat-{name}",
        f"FUZZY bot-{name}",
        f'SEARCH "torn sail of {name}" FROM resources',
        f"TRAVERSE lies_in WITH LOOKUP boat-{name}",
        f"SQL SELECT name FROM resources WHERE name = 'Boat {name}'",
    ):
        assert (await post(client, "/api/v1/query", {"query": query}))["count"] >= 1, query
    await say(client, f"The spare key of {name} is in the blue jar.")
    assert "blue jar" in await say(client, f"Where is the spare key of {name}?")
    await ingest(client, name)


async def say(client: httpx.AsyncClient, text: str) -> str:
    """Send a message in a new session, and return the answer."""
    body = {"model": "rem:local", "messages": [{"role": "user", "content": text}]}
    answer = await post(client, "/api/v1/chat/completions", body)
    return str(answer["choices"][0]["message"]["content"])


async def ingest(client: httpx.AsyncClient, name: str) -> None:
    """Upload a file, wait until a worker has read it, and search for it."""
    text = f"# Manual of {name}\n\nThe windlass {name} needs grease every spring."
    answer = await client.post("/api/v1/files", files=[("files", (f"{name}.md", text.encode(), "text/markdown"))])
    assert answer.status_code == 202, answer.text

    async def is_read() -> bool:
        files = (await client.get("/api/v1/files")).json()["data"]
        return ("completed", f"{name}.md") in {(file["status"], file["name"]) for file in files}

    await eventually(is_read, 120)
    found = await post(client, "/api/v1/query", {"query": f'SEARCH "windlass {name} grease"'})
    assert "windlass" in json.dumps(found["results"])


async def post(client: httpx.AsyncClient, path: str, body: object, status: int = 200) -> dict[str, Any]:
    """Send a request, and return the answer as JSON."""
    answer = await client.post(path, json=body)
    assert answer.status_code == status, f"{path} {body}: {answer.status_code} {answer.text}"
    return dict(answer.json())


async def test_earlier_processes_work_on_the_new_schema(earlier: EarlierVersion, settings: dict[str, str]) -> None:
    remembered = earlier.run("remember", "The old anchor weighs 40 kg.", "--user", USER, settings=settings)
    assert remembered.returncode == 0, remembered.stderr
    with earlier.running("worker", settings=settings), earlier.serving(settings) as old_address:
        async with connect(old_address) as old:
            await use_memory(old, "before")
            load = WriteLoad(old_address)
            async with load.running():
                await load.wait_for_writes(20)
                migrated = await asyncio.to_thread(run_rem, "db", "migrate", settings=settings)
                assert (migrated.returncode, builtin_migrations()[-1].name in migrated.stdout) == (0, True), migrated
                await load.wait_for_writes(20)
            # A write may lose against the migration. It has stored nothing, and its client is told to try again.
            assert [error for error in load.unexpected if not error.startswith("409")] == []
            await use_memory(old, "after")
            with serving(settings=settings) as (new_address, _):
                async with connect(new_address) as new:
                    await use_memory(new, "new")
                    for client, name in ((new, "before"), (new, "after"), (old, "new")):
                        found = await post(client, "/api/v1/query", {"query": f"LOOKUP boat-{name}"})
                        assert found["count"] == 1, name
                        assert "blue jar" in await say(client, f"Where is the spare key of {name}?")
                    assert "40 kg" in await say(new, "How heavy is the old anchor?")
    async with Rem.open(settings_for(settings["POSTGRES__CONNECTION_STRING"])) as rem:
        assert (await check_mirrors(rem.database)).is_exact
        assert [name for name in load.acknowledged if not await _is_stored(rem, name)] == []


async def _is_stored(rem: Rem, name: str) -> bool:
    counted = await rem.database.read(
        lambda connection: connection.fetchval("SELECT count(*) FROM rem.resources WHERE name = $1", name)
    )
    return bool(counted)


async def test_earlier_process_does_not_start_on_the_new_schema(
    earlier: EarlierVersion, settings: dict[str, str]
) -> None:
    assert (await asyncio.to_thread(run_rem, "db", "migrate", settings=settings)).returncode == 0
    for arguments in (("lookup", "boat", "--user", USER), ("serve", "--port", "0"), ("worker", "--once")):
        refused = await asyncio.to_thread(partial(earlier.run, *arguments, settings=settings))
        assert refused.returncode != 0
        assert "The database has migrations that this REM does not know" in refused.stderr
        assert "so upgrade REM" in refused.stderr


def test_new_version_names_what_is_pending(earlier: EarlierVersion, settings: dict[str, str]) -> None:
    names = [migration.name for migration in builtin_migrations()]
    pending = names[names.index(VERSIONS[earlier.commit]) + 1 :]
    for arguments in (("lookup", "boat", "--user", USER), ("serve", "--port", "0"), ("worker", "--once")):
        refused = run_rem(*arguments, settings=settings)
        assert refused.returncode != 0
        assert "does not fit this version of REM: run `rem db migrate`." in refused.stderr
    check = run_rem("db", "migrate", "--check", "--json", settings=settings)
    assert (check.returncode, json.loads(check.stdout)["pending"]) == (1, pending)
    mark, finding = run_doctor(settings)["schema"]
    assert (mark, f"pending are {', '.join(pending)}" in finding) == ("problem", True), finding
    # Nothing of this has changed the database: the earlier version works on.
    assert earlier.run("remember", "The ferry leaves at nine.", "--user", USER, settings=settings).returncode == 0


def test_new_version_undoes_its_migrations_for_the_earlier_one(
    earlier: EarlierVersion, settings: dict[str, str]
) -> None:
    names = [migration.name for migration in builtin_migrations()]
    steps = len(names) - names.index(VERSIONS[earlier.commit]) - 1
    _succeed(earlier.run("remember", "The ferry leaves at nine.", "--user", USER, settings=settings))
    _succeed(run_rem("db", "migrate", settings=settings))
    _succeed(run_rem("remember", "The bridge opens at ten.", "--user", USER, settings=settings))
    _succeed(run_rem("db", "rollback", "--steps", str(steps), "--yes", settings=settings))
    _succeed(earlier.run("db", "migrate", settings=settings))
    for question, answer in (("When does the ferry leave?", "nine"), ("When does the bridge open?", "ten")):
        asked = _succeed(earlier.run("ask", question, "--user", USER, settings=settings))
        assert answer in asked.stdout


def _succeed(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert done.returncode == 0, done.stderr
    return done
