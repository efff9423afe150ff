"""Back up a database of some gigabytes, restore it into an empty place, and compare every row of every table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import asyncpg

from bench.measure import Result, print_progress
from bench.search import prepare_vectors
from rem import Rem, Settings
from rem.db.database import Database
from rem.db.embedded.server import EmbeddedServer
from rem.db.sql import fill, parse_blocks
from rem.search.embedder_factory import open_embedder

GIGABYTES = 0.2
ROWS_AT_ONCE = 10_000
ACCOUNTS = 1_000
INDEX_SHARE = 0.21
"""The part of a database that is the index of its vectors, which is made at the end."""
OWNER = "owner"
_BLOCKS = Path(__file__).parent
_SQL = parse_blocks((_BLOCKS / "backup.sql").read_text())
_PASSAGES = parse_blocks((_BLOCKS / "search.sql").read_text())["passages"]


async def run(home: Path, gigabytes: float = GIGABYTES) -> Result:
    """Fill a database, and measure the commands as a user runs them."""
    result = Result("backup")
    restored_home, file = home.with_name("restored"), home.with_name("memory.backup")
    started = time.perf_counter()
    rows, size = await _fill(home, int(gigabytes * 1e9))
    filling = time.perf_counter() - started
    print_progress(f"backup: {rows:,} rows, {size / 1e9:.2f} GB, filled in {filling:.0f} s")
    try:
        backup_seconds = _run_rem(home, "db", "backup", str(file))
        file_bytes = file.stat().st_size
        print_progress(f"backup: {file_bytes / 1e9:.2f} GB written in {backup_seconds:.0f} s")
        restore_seconds = _run_rem(restored_home, "db", "restore", str(file))
        print_progress(f"backup: restored in {restore_seconds:.0f} s")
        before, after = await _read_checksums(home), await _read_checksums(restored_home)
        differing = sorted(table for table in before.keys() | after.keys() if before.get(table) != after.get(table))
        problems = _find_problems(restored_home)
        result.figures = {
            "database_bytes": size,
            "file_bytes": file_bytes,
            "rows": {table: count for table, (count, _) in before.items() if count},
            "backup_seconds": round(backup_seconds, 1),
            "restore_seconds": round(restore_seconds, 1),
            "compared_tables": len(before),
            "differing_tables": differing,
            "problems": problems,
        }
    finally:
        EmbeddedServer(restored_home).stop()
    result.check("tables that differ after a restore", len(differing), 0)
    result.check("problems that `rem doctor` and the audit find after a restore", len(problems), 0)
    return result


async def _fill(home: Path, target_bytes: int) -> tuple[int, int]:
    """Store rows with passages and vectors in many tenants until the database is large enough."""
    rows = 0
    async with Rem.open(Settings(rem_home=home)) as rem:
        await prepare_vectors(rem.database)
        async with rem.database.connection() as connection:
            await connection.execute("SET maintenance_work_mem = '2GB'")
            await connection.execute("SET synchronous_commit = off")
            await connection.execute("DROP INDEX IF EXISTS rem.passages_embedding_1")
            await connection.execute(_SQL["logins"], ACCOUNTS)
            await connection.execute(_SQL["keys"])
            while await connection.fetchval(_SQL["size"]) < target_bytes * (1 - INDEX_SHARE):
                tenant = f"tenant-{rows // ROWS_AT_ONCE}"
                await connection.execute(_SQL["rows"], tenant, OWNER, rows, rows + ROWS_AT_ONCE - 1)
                await connection.execute(_PASSAGES, tenant, 1)
                rows += ROWS_AT_ONCE
                print_progress(f"backup: {rows:,} rows stored")
            await connection.execute("DELETE FROM rem.search_queue")
            await connection.execute("SELECT rem.rem_index_passages(1::smallint, 384)")
            await connection.execute("SELECT rem.rem_fold_statistics()")
            await connection.execute("DROP TABLE bench_vectors")
            # `rem doctor` compares it with the settings.
            await connection.execute("UPDATE rem.embedding_models SET name = $1", await _read_model(rem))
            await connection.execute("VACUUM ANALYZE")
            size: int = await connection.fetchval(_SQL["size"])
    return rows, size


async def _read_model(rem: Rem) -> str:
    embedder = open_embedder(rem.settings)
    await embedder.close()
    return embedder.model


def _run_rem(home: Path, *arguments: str) -> float:
    """Run a command of REM, and return its seconds."""
    started = time.perf_counter()
    _call_rem(home, *arguments).check_returncode()
    return time.perf_counter() - started


def _call_rem(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("rem")), *arguments]
    return subprocess.run(
        command, env={**os.environ, "REM_HOME": str(home)}, stdout=subprocess.PIPE, text=True, check=False
    )


async def _read_checksums(home: Path) -> dict[str, tuple[int, str]]:
    """Return the number of rows and the checksum of every table."""
    connection = await asyncpg.connect(Database(Settings(rem_home=home)).get_connection_string())
    try:
        # Times must have the same text on both sides.
        await connection.execute("SET timezone = 'UTC'")
        checksums = {}
        for (table,) in await connection.fetch(_SQL["tables"]):
            row: Any = await connection.fetchrow(fill(_SQL["checksum"], table=table))
            checksums[table] = (row[0], row[1])
        return checksums
    finally:
        await connection.close()


def _find_problems(home: Path) -> list[str]:
    """Return what `rem doctor` and the audit of derived statements find in a restored memory."""
    problems = [
        f"{check['name']}: {check['finding']}"
        for check in json.loads(_call_rem(home, "doctor", "--json").stdout)
        if check["mark"] != "ok"
    ]
    audit = _call_rem(home, "dreaming", "audit", "--all")
    return problems if audit.returncode == 0 else [*problems, f"audit: {audit.stdout}"]
