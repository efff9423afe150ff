"""The checks of `rem doctor` for deployments: hosts, connection pooler, replica, lost writes, and space on the disk."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import asyncpg

    from rem.db.topology import Endpoint, Host, ReplicaLag
    from rem.settings import Settings

MIN_FREE_BYTES = 2**30
WAITING_COMMITS = ("on", "remote_apply", "remote_write")
"""The values of synchronous_commit with which a commit waits for synchronous standbys."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a check. A warning is about something that works, but may cost data or time."""

    text: str
    is_warning: bool = False


Probe: TypeAlias = Callable[[], Awaitable[str | Diagnosis]]
"""Describes one part of the installation. Raises a RemError if something is wrong with it."""


def select_deployment_checks(settings: Settings) -> list[tuple[str, Probe]]:
    """Return the names and checks of those parts that this deployment has."""
    from rem.db.addresses import get_direct_connection_string, split_hosts

    postgres = settings.postgres
    if postgres.connection_string is None:
        return [("disk", _check_disk)]
    checks: list[tuple[str, Probe]] = []
    if len(split_hosts(get_direct_connection_string(postgres))) > 1:
        checks.append(("hosts", _check_hosts))
    if postgres.uses_pooler:
        checks.append(("pooler", _check_pooler))
    checks.append(("durability", _check_durability))
    if postgres.uses_replica:
        checks.append(("replica", _check_replica))
    return checks


def format_bytes(number: int) -> str:
    """Return a number of bytes with a unit: 340 B, 1.5 GB."""
    size = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def join_words(words: list[str]) -> str:
    """Return the words as `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


async def _check_disk() -> str | Diagnosis:
    """Check the space that is left for the embedded server. Nobody can ask your own server for it."""
    from rem.db.database import Database
    from rem.db.sql import query
    from rem.errors import DatabaseError
    from rem.settings import get_settings

    database = Database(get_settings())
    async with database.unpooled_connection() as connection:
        size = await connection.fetchval(query("db/preflight", "size"))
    if full := database.describe_full_disk():
        raise DatabaseError(full)
    status = database.embedded_status()
    assert status is not None  # noqa: S101  # this check runs with the embedded server only
    free = shutil.disk_usage(status.data_dir).free
    text = f"the database has {format_bytes(size)}, {format_bytes(free)} of the disk are free"
    if free < max(MIN_FREE_BYTES, size // 10):
        return Diagnosis(f"{text}: PostgreSQL stops when the disk is full", is_warning=True)
    return text


async def _check_hosts() -> str | Diagnosis:
    """Check that exactly one host of a connection string with several accepts writes."""
    from rem.db.topology import may_choose_standby, read_hosts
    from rem.settings import get_settings

    settings = get_settings().postgres
    return describe_hosts(await read_hosts(settings), may_choose_standby=may_choose_standby(settings))


def describe_hosts(hosts: list[Host], *, may_choose_standby: bool) -> str | Diagnosis:
    """Describe the hosts of a connection string. Raise an error if writes may go to the wrong one."""
    from rem.errors import DatabaseError, SettingsError

    primaries = [host.address for host in hosts if host.role == "primary"]
    if len(primaries) != 1:
        raise DatabaseError(
            f"{join_words(primaries)} both accept writes: stop the one that is not the primary any more."
            if primaries
            else "No host accepts writes: promote a standby."
        )
    if len({host.system_identifier for host in hosts if host.role is not None}) > 1:
        raise SettingsError("The hosts of the connection string are servers with different data: name one cluster.")
    if may_choose_standby:
        raise SettingsError(
            "REM may connect to a standby, which refuses writes: add ?target_session_attrs=read-write to the "
            "connection string."
        )
    text = ", ".join(f"{host.address} {host.role or f'does not answer ({host.error})'}" for host in hosts)
    is_warning = any(host.role is None for host in hosts)
    return Diagnosis(f"{text}: REM cannot continue there if the primary fails" if is_warning else text, is_warning)


async def _check_pooler() -> str:
    """Check that the pooler and the direct address lead to the same database as the same role."""
    from rem.db.database import Database
    from rem.db.topology import read_endpoint
    from rem.settings import get_settings

    database = Database(get_settings())
    async with database.unpooled_connection("pooler") as pooled, database.unpooled_connection() as direct:
        return describe_pooler(await read_endpoint(pooled), await read_endpoint(direct), database.describe_address())


def describe_pooler(pooled: Endpoint, direct: Endpoint, address: str) -> str:
    """Describe the connection pooler. Raise SettingsError if the two addresses do not belong together."""
    from rem.errors import SettingsError

    if (pooled.system_identifier, pooled.database_name) != (direct.system_identifier, direct.database_name):
        raise SettingsError(
            "POSTGRES__CONNECTION_STRING and POSTGRES__DIRECT_CONNECTION_STRING lead to different databases."
        )
    if pooled.role_name != direct.role_name:
        raise SettingsError(
            f"The pooler logs in as {pooled.role_name}, the direct connection as {direct.role_name}: use one role, "
            "because `rem db migrate` stores settings for it."
        )
    if not pooled.is_pooler:
        return f"none answers at {address}: POSTGRES__DIRECT_CONNECTION_STRING is not necessary"
    return f"{address}, in front of the same database; locks, LISTEN and migrations go to the server itself"


async def _check_durability() -> str | Diagnosis:
    """Check which acknowledged writes survive a crash, or the loss of the server."""
    from rem.db.database import Database
    from rem.db.sql import query
    from rem.settings import get_settings

    async with Database(get_settings()).unpooled_connection() as connection:
        state = await connection.fetchrow(query("db/preflight", "durability"))
        assert state is not None  # noqa: S101  # one row, always
    return describe_durability(state)


def describe_durability(state: asyncpg.Record) -> str | Diagnosis:
    """Describe what a crash and a failover lose. Raise DatabaseError if every write waits for a missing standby."""
    from rem.cli.output import format_count
    from rem.errors import DatabaseError

    commit, standbys, synchronous = state["synchronous_commit"], state["standbys"], state["synchronous_standbys"]
    waits = bool(state["synchronous_standby_names"]) and commit in WAITING_COMMITS
    if waits and synchronous == 0:
        raise DatabaseError(
            f"Every write waits for a standby of synchronous_standby_names ({state['synchronous_standby_names']}), and "
            "none is connected: start it, or change this setting of the server."
        )
    parts = [f"wal_level {state['wal_level']}, synchronous_commit {commit}", _describe_loss(standbys, waits=waits)]
    parts.append(f"{format_count(standbys, 'standby')} connected")
    parts.append(f"the database has {format_bytes(state['size_bytes'])}")
    text = "; ".join(parts)
    if not state["is_crash_safe"]:
        return Diagnosis(f"fsync or full_page_writes is off: a crash may destroy the database; {text}", is_warning=True)
    if commit == "off":
        return Diagnosis(f"a crash loses the writes of the last moment (synchronous_commit); {text}", is_warning=True)
    return text


def _describe_loss(standbys: int, *, waits: bool) -> str:
    if waits:
        return "commits wait for a standby: a failover loses no acknowledged write"
    if standbys:
        return "commits do not wait for standbys: a failover loses what was not sent yet (synchronous_standby_names)"
    return "no standby has a copy"


async def _check_replica() -> str | Diagnosis:
    """Check that the replica answers, follows the primary, and is not far behind."""
    from rem.db.addresses import describe_connection_string, read_connection_string
    from rem.db.database import Database
    from rem.db.topology import read_replica
    from rem.errors import DatabaseUnavailableError, RemError
    from rem.settings import get_settings

    settings = get_settings()
    address = describe_connection_string(read_connection_string(settings.postgres.replica_connection_string))
    try:
        primary, replica, lag = await read_replica(Database(settings))
    except RemError as error:
        raise DatabaseUnavailableError(
            f"The replica at {address} does not answer, so the primary answers all reads: {error}"
        ) from error
    return describe_replica(address, primary, replica, lag)


def describe_replica(address: str, primary: Endpoint, replica: Endpoint, lag: ReplicaLag | None) -> str | Diagnosis:
    """Describe the replica. Raise an error if REM cannot read from it."""
    from rem.db.replica import MAX_BEHIND_SECONDS
    from rem.db.topology import MAX_CATCH_UP_SECONDS
    from rem.errors import DatabaseError, SettingsError

    if primary.is_standby:
        return "not used, because POSTGRES__CONNECTION_STRING itself leads to a standby"
    if primary.system_identifier != replica.system_identifier:
        raise SettingsError(
            f"The server at {address} is not a replica of the primary: fix POSTGRES__REPLICA_CONNECTION_STRING."
        )
    if lag is None:
        raise SettingsError(
            f"The server at {address} accepts writes, so it is no standby: fix POSTGRES__REPLICA_CONNECTION_STRING. "
            "The primary answers all reads."
        )
    if lag.seconds is None:
        reason = "its replay is paused (SELECT pg_wal_replay_resume() continues it)" if lag.is_paused else "see its log"
        raise DatabaseError(
            f"The replica at {address} is {format_bytes(lag.missing_bytes)} of log behind, and did not catch up in "
            f"{MAX_CATCH_UP_SECONDS:.0f} s, so the primary answers all reads: {reason}."
        )
    text = f"{address}, a standby of the primary, {lag.seconds:.2f} s behind"
    if lag.seconds > MAX_BEHIND_SECONDS:
        return Diagnosis(f"{text}: the primary answers reads beyond {MAX_BEHIND_SECONDS} s", is_warning=True)
    if not lag.sends_feedback:
        text += "; hot_standby_feedback is off, so long reads on it may be cancelled and run again on the primary"
        return Diagnosis(text, is_warning=True)
    return text
