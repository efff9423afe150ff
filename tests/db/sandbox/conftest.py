"""Rows of several owners, and sandboxes with different protections."""

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
from rem.settings import Settings, SqlSettings

SECRET = "pineapple"
"""A word in every row that Alice must not see, and in no other row."""
TIMEOUT = 0.25
ALICE = Scope("default", "alice")
BOB = Scope("default", "bob")
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Protection: TypeAlias = Literal["catalogue closed", "catalogue open"]
PROTECTIONS: list[Protection] = ["catalogue closed", "catalogue open"]
"""The embedded server; an external server whose superuser has not closed the catalogue."""


@dataclass(slots=True)
class Client:
    """Runs SQL in the scope of one user."""

    sandbox: SqlSandbox
    scope: Scope

    async def select(self, statement: str, limit: int | None = None) -> list[dict[str, Any]]:
        return (await self.selection(statement, limit)).rows

    async def selection(self, statement: str, limit: int | None = None) -> SelectResult:
        return await self.sandbox.select(self.scope, statement, limit=limit)

    async def answer(self, statement: str) -> tuple[bool, str]:
        """Return True if the statement ran, and all returned text: the rows, or the error with its cause."""
        try:
            return True, str(await self.select(statement))
        except RemError as error:
            return False, f"{error!r} {error.__cause__!r} {vars(error.__cause__) if error.__cause__ else ''}"


async def remember(store: Store, text: str) -> None:
    """Store rows in many tables, with the text in every text field."""
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
    """Store "apple" for Alice and her tenant. Store SECRET for all others, and in deleted and expired rows."""
    alice = rem.for_user("alice").store
    await remember(alice, "apple")
    await remember(rem.for_user().store, "apple")
    await remember(rem.for_user("bob").store, SECRET)
    await remember(rem.for_user("alice", tenant="other").store, SECRET)
    await remember(rem.for_user(tenant="other").store, SECRET)
    edges = [Edge(dst=f"{SECRET}-gone")]
    gone = await alice.upsert(Resource(name=f"deleted {SECRET}", content=SECRET, graph_edges=edges))
    await alice.delete(gone)
    expired_at = datetime.now(UTC) - timedelta(seconds=1)
    await alice.upsert(Resource(name=f"expired {SECRET}", content=SECRET, expires_at=expired_at, graph_edges=edges))


def sandbox_on(rem: Rem, settings: Settings, **limits: Any) -> SqlSandbox:
    """Return a sandbox with the given limits."""
    settings = settings.model_copy(update={"sql": SqlSettings.model_validate(limits)})
    return SqlSandbox(rem.database, settings)


@pytest.fixture
async def sandbox(rem: Rem, settings: Settings) -> AsyncIterator[SqlSandbox]:
    """Return a sandbox with the default settings."""
    sandbox = sandbox_on(rem, settings)
    yield sandbox
    await sandbox.close()


@pytest.fixture
def client(sandbox: SqlSandbox) -> Client:
    """Return a client of Alice, without rows."""
    return Client(sandbox, ALICE)


@pytest.fixture
async def alice_sql(sandbox: SqlSandbox, memories: None) -> Client:
    """Return a client of Alice, with rows."""
    return Client(sandbox, ALICE)


@pytest.fixture(params=PROTECTIONS)
def protection(request: pytest.FixtureRequest) -> Protection:
    """Return the optional protections of the test."""
    protection: Protection = request.param
    return protection


@pytest.fixture
async def mallory(
    rem: Rem, settings: Settings, memories: None, sql: Connection, protection: Protection
) -> AsyncIterator[Client]:
    """Return a client of Alice as an attacker, with some of the protections."""
    if "closed" in protection:
        await sql.execute("SELECT rem.rem_sql_close_catalog()")
    sandbox = sandbox_on(rem, settings, timeout_seconds=TIMEOUT, max_rows=100)
    await sandbox.select(ALICE, "SELECT 1")
    yield Client(sandbox, ALICE)
    await sandbox.close()


@pytest.fixture
async def role(sandbox: SqlSandbox, memories: None, dsn: str, sql: Connection) -> AsyncIterator[Connection]:
    """Return a direct connection as the role of the sandbox, without REM."""
    await sandbox.select(ALICE, "SELECT 1")
    connection = await asyncpg.connect(dsn, user=await sql.fetchval("SELECT role_name FROM sql_access"))
    yield connection
    await connection.close()
