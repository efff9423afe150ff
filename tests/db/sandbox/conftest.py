"""Memories of several people, and sandboxes with and without each of the walls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

import asyncpg
import pytest

from rem.app import Rem
from rem.context import Scope
from rem.db.sandbox import SelectResult, SqlSandbox
from rem.db.store import Store
from rem.errors import RemError
from rem.models import Document, Edge, Message, Resource, Session, User
from rem.query.verbs.sql_guard import check_select
from rem.settings import Settings, SqlSettings

SECRET = "pineapple"
"""Stands in all that Alice must not see, and in nothing else."""
TIMEOUT = 0.25
ALICE = Scope("default", "alice")
BOB = Scope("default", "bob")
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Walls: TypeAlias = Literal["gate, catalogue open", "no gate, catalogue closed", "no gate, catalogue open"]
WALLS: list[Walls] = ["gate, catalogue open", "no gate, catalogue closed", "no gate, catalogue open"]
"""A managed server; the embedded one with the gate broken; a managed one with the gate broken."""


@dataclass(slots=True)
class Client:
    """Somebody who types SQL."""

    sandbox: SqlSandbox
    scope: Scope

    async def select(self, statement: str, limit: int | None = None) -> list[dict[str, Any]]:
        return (await self.selection(statement, limit)).rows

    async def selection(self, statement: str, limit: int | None = None) -> SelectResult:
        return await self.sandbox.select(self.scope, statement, limit=limit)

    async def answer(self, statement: str) -> tuple[bool, str]:
        """Whether the statement ran, and all that came back: the rows or the error with what it was made from."""
        try:
            return True, str(await self.select(statement))
        except RemError as error:
            return False, f"{error!r} {error.__cause__!r} {vars(error.__cause__) if error.__cause__ else ''}"


async def remember(store: Store, text: str) -> None:
    """A row in many tables, with the text in every place that takes one."""
    owner = store.scope.user_id or "shared"
    edges = [Edge(dst=f"{text}-target", rel_type="knows")]
    metadata = {"x": "y", "text": text}
    await store.upsert(
        Resource(name=f"{owner} {text}", content=text, metadata=metadata, graph_edges=edges, tags=[text])
    )
    await store.upsert(User(name=f"{owner} {text} user", email=f"{text}-{owner}@example.com", summary=text))
    await store.upsert(Document(content=text))
    if store.scope.user_id is not None:
        session = await store.upsert(Session(name=f"{owner} {text}"))
        await store.upsert(Message(session_id=session.id, message_index=0, role="user", content=text))


@pytest.fixture
async def memories(rem: Rem) -> None:
    """Alice and her tenant have apples; all the others, and what was deleted or has lapsed, pineapples."""
    alice = rem.store("alice")
    await remember(alice, "apple")
    await remember(rem.store(), "apple")
    await remember(rem.store("bob"), SECRET)
    await remember(rem.store("alice", tenant="other"), SECRET)
    await remember(rem.store(tenant="other"), SECRET)
    edges = [Edge(dst=f"{SECRET}-gone")]
    gone = await alice.upsert(Resource(name=f"deleted {SECRET}", content=SECRET, graph_edges=edges))
    await alice.delete(gone)
    lapsed = datetime.now(UTC) - timedelta(seconds=1)
    await alice.upsert(Resource(name=f"lapsed {SECRET}", content=SECRET, expires_at=lapsed, graph_edges=edges))


def sandbox_on(rem: Rem, settings: Settings, *, gate: bool = True, **limits: Any) -> SqlSandbox:
    """A sandbox with limits of its own."""
    settings = settings.model_copy(update={"sql": SqlSettings.model_validate(limits)})
    return SqlSandbox(rem.database, settings, check_select if gate else None)


@pytest.fixture
async def sandbox(rem: Rem, settings: Settings) -> AsyncIterator[SqlSandbox]:
    """A sandbox as REM makes it."""
    sandbox = sandbox_on(rem, settings)
    yield sandbox
    await sandbox.close()


@pytest.fixture
def client(sandbox: SqlSandbox) -> Client:
    """Alice, who types SQL that needs no rows."""
    return Client(sandbox, ALICE)


@pytest.fixture
async def alice_sql(sandbox: SqlSandbox, memories: None) -> Client:
    """Alice, who types SQL."""
    return Client(sandbox, ALICE)


@pytest.fixture(params=WALLS)
def walls(request: pytest.FixtureRequest) -> Walls:
    """Which walls stand, besides those that always do."""
    walls: Walls = request.param
    return walls


@pytest.fixture
async def mallory(rem: Rem, settings: Settings, memories: None, sql: Connection, walls: Walls) -> AsyncIterator[Client]:
    """Alice with bad intentions, where only some of the walls stand."""
    if "closed" in walls:
        await sql.execute("SELECT rem.rem_sql_close_catalog()")
    sandbox = sandbox_on(rem, settings, gate="no gate" not in walls, timeout_seconds=TIMEOUT, max_rows=100)
    await sandbox.select(ALICE, "SELECT 1")
    yield Client(sandbox, ALICE)
    await sandbox.close()


@pytest.fixture
async def role(sandbox: SqlSandbox, memories: None, dsn: str, sql: Connection) -> AsyncIterator[Connection]:
    """A connection as the sandbox's role, past all of REM."""
    await sandbox.select(ALICE, "SELECT 1")
    connection = await asyncpg.connect(dsn, user=await sql.fetchval("SELECT role_name FROM sql_access"))
    yield connection
    await connection.close()
