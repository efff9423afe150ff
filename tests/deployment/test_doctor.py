"""`rem doctor` on a deployment: what stands at each address, how far the replica is behind, and what may be lost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.cli.test_doctor import run_doctor
from tests.conftest import settings_for
from tests.deployment.servers import PostgresServer, find_free_port, migrate
from tests.deployment.test_failover import multi_host_dsn
from tests.jobs.conftest import eventually


@pytest.fixture(scope="module")
def primary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A migrated primary whose key cache is in the log."""
    primary = PostgresServer(tmp_path_factory.mktemp("doctor") / "primary")

    async def start() -> None:
        await primary.create()
        await migrate(settings_for(primary.dsn(), replica_connection_string=SecretStr(primary.dsn())))

    asyncio.run(start())
    yield primary
    primary.remove()


@pytest.fixture(scope="module")
def replica(primary: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    replica = asyncio.run(primary.replicate(tmp_path_factory.mktemp("doctor") / "replica"))
    yield replica
    replica.remove()


def check(primary: PostgresServer | str, replica: PostgresServer | str | None = None) -> dict[str, tuple[str, str]]:
    """Return what the doctor finds with these addresses."""
    settings = {
        "POSTGRES__CONNECTION_STRING": primary if isinstance(primary, str) else primary.dsn(),
        "POSTGRES__CONNECT_TIMEOUT_SECONDS": "2",
    }
    if replica is not None:
        settings["POSTGRES__REPLICA_CONNECTION_STRING"] = replica if isinstance(replica, str) else replica.dsn()
    return run_doctor(settings)


async def test_replica_is_named_with_its_lag(primary: PostgresServer, replica: PostgresServer) -> None:
    async def is_clean() -> bool:
        # It was just started, or the machine is slow: until it has caught up, there is a warning.
        checks = await asyncio.to_thread(check, primary, replica)
        finding = checks["replica"][1]
        assert re.match(rf"127.0.0.1:{replica.port}/rem, a standby of the primary, \d\.\d\d s behind", finding), finding
        return all(mark == "ok" for mark, _ in checks.values())

    await eventually(is_clean, 60)
    assert "replica" not in await asyncio.to_thread(check, primary)


async def test_paused_replica_is_a_problem(primary: PostgresServer, replica: PostgresServer) -> None:
    await replica.execute("SELECT pg_wal_replay_pause()")
    try:
        await primary.execute("CREATE TABLE written_meanwhile AS SELECT generate_series(1, 10000)")
        checks = await asyncio.to_thread(check, primary, replica)
    finally:
        await replica.execute("SELECT pg_wal_replay_resume()")
    mark, finding = checks["replica"]
    assert mark == "problem"
    assert "B of log behind, and did not catch up in 5 s" in finding
    assert "pg_wal_replay_resume()" in finding
    # A replica that is behind keeps nothing else from being checked.
    assert checks["jobs"][0] == "ok"


def test_replica_that_does_not_answer_is_a_problem(primary: PostgresServer) -> None:
    mark, finding = check(primary, f"postgresql://rem@127.0.0.1:{find_free_port()}/rem")["replica"]
    assert mark == "problem"
    assert "does not answer, so the primary answers all reads" in finding


def test_replica_that_is_the_primary_itself_is_a_problem(primary: PostgresServer) -> None:
    mark, finding = check(primary, primary)["replica"]
    assert (mark, "accepts writes, so it is no standby" in finding) == ("problem", True), finding


def test_replica_of_another_server_is_a_problem(primary: PostgresServer, dsn: str) -> None:
    mark, finding = check(primary, dsn)["replica"]
    assert (mark, "is not a replica of the primary" in finding) == ("problem", True), finding


async def test_replica_without_feedback_is_a_warning(primary: PostgresServer, tmp_path: Path) -> None:
    replica = await primary.replicate(tmp_path / "replica", hot_standby_feedback="off")
    try:
        mark, finding = (await asyncio.to_thread(check, primary, replica))["replica"]
    finally:
        replica.remove()
    assert (mark, "hot_standby_feedback is off" in finding) == ("warning", True), finding


def test_standby_as_only_server_is_a_warning(replica: PostgresServer) -> None:
    mark, finding = check(replica)["database"]
    assert (mark, finding.endswith("a standby, so REM only reads")) == ("warning", True), finding


def test_hosts_are_named_with_their_roles(primary: PostgresServer, replica: PostgresServer) -> None:
    dsn = multi_host_dsn(replica, primary)
    mark, finding = check(dsn)["hosts"]
    assert mark == "ok"
    assert finding == f"127.0.0.1:{replica.port}/rem standby, 127.0.0.1:{primary.port}/rem primary"
    mark, finding = check(dsn.replace("read-write", "any"))["hosts"]
    assert (mark, "add ?target_session_attrs=read-write" in finding) == ("problem", True), finding
    nobody = find_free_port()
    mark, finding = check(multi_host_dsn(primary, nobody))["hosts"]
    assert (mark, f"127.0.0.1:{nobody}/rem does not answer" in finding) == ("warning", True), finding


async def test_two_primaries_are_a_problem(primary: PostgresServer, tmp_path: Path) -> None:
    promoted = await primary.replicate(tmp_path / "promoted")
    try:
        await promoted.promote()
        mark, finding = (await asyncio.to_thread(check, multi_host_dsn(primary, promoted)))["hosts"]
    finally:
        promoted.remove()
    assert (mark, "both accept writes" in finding) == ("problem", True), finding


async def test_durability_tells_what_a_failover_loses(primary: PostgresServer, replica: PostgresServer) -> None:
    await eventually(lambda: _has_standbys(primary, 1))
    mark, finding = (await asyncio.to_thread(check, primary))["durability"]
    assert mark == "ok"
    assert finding.startswith("wal_level replica, synchronous_commit on; commits do not wait for standbys")
    assert "1 standby connected" in finding
    await _set_synchronous(primary, "*")
    try:
        mark, finding = (await asyncio.to_thread(check, primary))["durability"]
        assert (mark, "a failover loses no acknowledged write" in finding) == ("ok", True), finding
        # Nobody has this name, so a write would wait forever, also one of the doctor.
        await _set_synchronous(primary, "nobody")
        checks = await asyncio.to_thread(check, primary)
        assert checks["durability"][0] == "problem"
        assert "Every write waits for a standby of synchronous_standby_names (nobody)" in checks["durability"][1]
        assert "schema" not in checks
    finally:
        await _set_synchronous(primary, "")
    await primary.execute("ALTER SYSTEM SET synchronous_commit = off")
    await primary.execute("SELECT pg_reload_conf()")
    try:
        mark, finding = (await asyncio.to_thread(check, primary))["durability"]
        assert (mark, "a crash loses the writes of the last moment" in finding) == ("warning", True), finding
    finally:
        await primary.execute("ALTER SYSTEM RESET synchronous_commit")
        await primary.execute("SELECT pg_reload_conf()")


async def _set_synchronous(primary: PostgresServer, names: str) -> None:
    """Set the standbys that commits wait for, and wait until the server knows it."""
    await primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    await primary.execute("SELECT pg_reload_conf()")
    is_waited_for = "count(*) FILTER (WHERE sync_state = 'sync')" if names == "*" else "1"

    async def is_set() -> bool:
        current = "current_setting('synchronous_standby_names')"
        wanted = f"SELECT {current} = '{names}' AND {is_waited_for} > 0 FROM pg_stat_replication GROUP BY ()"
        return bool(await primary.execute(wanted))

    await eventually(is_set)


async def _has_standbys(primary: PostgresServer, count: int) -> bool:
    return await primary.execute("SELECT count(*) FROM pg_stat_replication") == count
