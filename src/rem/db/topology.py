"""Find out what stands at the addresses of the settings: a primary, a standby or a connection pooler."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from rem.db.addresses import describe_connection_string, get_direct_connection_string, split_hosts
from rem.db.driver_errors import DRIVER_ERRORS
from rem.db.sql import query

if TYPE_CHECKING:
    from rem.db.database import Connection, Database
    from rem.settings import PostgresSettings

Role: TypeAlias = Literal["primary", "standby"]
MAX_CATCH_UP_SECONDS = 5.0
"""Time that a standby has to replay what the primary has committed."""
POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The server that a connection leads to."""

    system_identifier: int
    """The same number on a primary and on all its standbys."""
    database_name: str
    role_name: str
    is_standby: bool
    is_pooler: bool
    """True if a connection pooler stands between REM and the server."""


@dataclass(frozen=True, slots=True)
class Host:
    """One host of a connection string with several, and what it is. `error` says why it cannot be used."""

    address: str
    role: Role | None
    system_identifier: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ReplicaLag:
    """The distance of a standby from its primary."""

    seconds: float | None
    """Time that it took to replay what the primary had committed; None if it took longer than MAX_CATCH_UP_SECONDS."""
    missing_bytes: int
    """The part of the log that it had not replayed at the end of this time."""
    is_paused: bool
    sends_feedback: bool


async def read_endpoint(connection: Connection) -> Endpoint:
    """Return what a connection leads to."""
    # A pooler may send the two steps of a statement to two connections, of which each has statements of others.
    async with connection.transaction():
        statement = await connection.prepare(query("db/preflight", "identity"), name=f"rem_{uuid4().hex}")
        row = await statement.fetchrow()
    assert row is not None  # noqa: S101  # one row, always
    # A pooler greets its clients with a number of its own, because it does not know yet which process will serve them.
    is_pooler = connection.get_server_pid() != row["backend_pid"]
    return Endpoint(row["system_identifier"], row["database_name"], row["role_name"], row["is_standby"], is_pooler)


async def read_hosts(settings: PostgresSettings) -> list[Host]:
    """Return every host of the address of the server, in its order."""
    addresses = split_hosts(get_direct_connection_string(settings))
    return list(await asyncio.gather(*(_read_host(host, settings.connect_timeout_seconds) for host in addresses)))


async def _read_host(address: str, timeout_seconds: float) -> Host:
    name = describe_connection_string(address)
    try:
        async with asyncio.timeout(timeout_seconds):
            connection = await asyncpg.connect(address, target_session_attrs=SessionAttribute.any)
            try:
                endpoint = await read_endpoint(connection)
            finally:
                await connection.close()
    except DRIVER_ERRORS as error:
        return Host(name, None, error=str(error) or "no answer")
    return Host(name, "standby" if endpoint.is_standby else "primary", endpoint.system_identifier)


def may_choose_standby(settings: PostgresSettings) -> bool:
    """Return True if the address of the server allows a connection to a host that refuses writes."""
    options = parse_qs(urlsplit(get_direct_connection_string(settings)).query)
    return options.get("target_session_attrs", ["any"])[0] not in ("read-write", "primary")


async def measure_lag(primary: Connection, standby: Connection) -> ReplicaLag:
    """Measure how long a standby takes to replay everything that its primary has committed by now."""
    clock = asyncio.get_running_loop().time
    wanted = int(await primary.fetchval(query("db/replica", "committed_position")))
    started = clock()
    while True:
        missing = wanted - int(await standby.fetchval(query("db/replica", "replayed_position")))
        elapsed = clock() - started
        if missing <= 0 or elapsed > MAX_CATCH_UP_SECONDS:
            break
        await asyncio.sleep(POLL_SECONDS)
    state = await standby.fetchrow(query("db/preflight", "standby"))
    assert state is not None  # noqa: S101  # one row, always
    seconds = elapsed if missing <= 0 else None
    return ReplicaLag(seconds, max(missing, 0), state["is_paused"], state["sends_feedback"])


async def read_replica(database: Database) -> tuple[Endpoint, Endpoint, ReplicaLag | None]:
    """Return what the primary and the replica of the settings are, and the lag if the one follows the other."""
    async with database.unpooled_connection() as primary, database.unpooled_connection("replica") as replica:
        source, copy = await read_endpoint(primary), await read_endpoint(replica)
        is_pair = copy.is_standby and not source.is_standby and copy.system_identifier == source.system_identifier
        return source, copy, await measure_lag(primary, replica) if is_pair else None
