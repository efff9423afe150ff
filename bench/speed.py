"""Run the benchmarks of speed, each on a database of its own, and print their figures and checks as JSON."""

from __future__ import annotations

import asyncio
import json
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench import (
    attacks,
    backup,
    bulk_load,
    chat,
    crashes,
    dreaming,
    embedder,
    encryption,
    fuzzy,
    http_lookup,
    ingest,
    jobs,
    lookup,
    notes,
    parse,
    partitions,
    processes,
    reranker,
    search,
    startup,
    tenants,
    traverse,
    web,
)
from bench.measure import Result, print_progress
from rem.db.embedded.server import EmbeddedServer
from rem.settings import Settings


def measure_speed(names: Sequence[str], quick: bool, gigabytes: float | None, rounds: int | None) -> bool:
    """Run benchmarks and print their report. Return whether all figures are within their limits."""
    results = [_run(name, quick, gigabytes or backup.GIGABYTES, rounds or crashes.ROUNDS) for name in names]
    checks = [asdict(check) | {"passed": check.passed} for result in results for check in result.checks]
    report = {
        "machine": {"python": platform.python_version(), "system": platform.platform()},
        "results": {result.name: result.figures for result in results},
        "checks": checks,
    }
    json.dump(report, sys.stdout, indent=2)
    print()
    for check in checks:
        print_progress(
            f"{'ok    ' if check['passed'] else 'MISSED'} {check['name']}: {check['measured']} (limit {check['limit']})"
        )
    return all(check["passed"] for check in checks)


def _run(name: str, quick: bool, gigabytes: float, rounds: int) -> Result:
    if name == "parse":
        return parse.run(200 if quick else parse.ROUNDS)
    with tempfile.TemporaryDirectory(prefix="rem-bench-") as folder:
        home = Path(folder) / "home"
        try:
            return asyncio.run(_measure_on_request(name, home, quick, gigabytes, rounds))
        finally:
            EmbeddedServer(home).stop()


async def _measure_on_request(name: str, home: Path, quick: bool, gigabytes: float, rounds: int) -> Result:
    match name:
        case "processes":
            return await processes.run(home, 1, 2) if quick else await processes.run(home)
        case "tenants":
            return await tenants.run(Settings(rem_home=home), tenants.QUICK if quick else None)
        case "backup":
            return await backup.run(home, 0.02 if quick else gigabytes)
        case "crashes":
            return await crashes.run(home, 1, crashes.QUICK, 0.1) if quick else await crashes.run(home, rounds)
        case "notes":
            return await notes.run(home, notes.QUICK if quick else notes.SIZES)
        case "search_large":
            settings = Settings(rem_home=home)
            return await search.run_large(settings, (60_000, 65_000), 20) if quick else await search.run_large(settings)
    return await _measure(name, home, quick)


async def _measure(name: str, home: Path, quick: bool) -> Result:
    settings = Settings(rem_home=home)
    match name:
        case "lookup":
            return await lookup.run(settings, (1_000, 10_000) if quick else lookup.SIZES)
        case "fuzzy":
            return await fuzzy.run(settings, (1_000, 5_000) if quick else fuzzy.SIZES)
        case "traverse":
            return await traverse.run(settings, 2_000 if quick else traverse.NODES)
        case "search":
            return await search.run(settings, (7_000,), 20) if quick else await search.run(settings)
        case "bulk_load":
            return await bulk_load.run(settings, 5_000 if quick else bulk_load.ROWS)
        case "chat":
            return await chat.run(home, (10, 60), 10) if quick else await chat.run(home)
        case "embedder":
            return await embedder.run(home, 20 if quick else embedder.TEXTS)
        case "reranker":
            return await reranker.run(home, 3 if quick else reranker.ROUNDS)
    return await _measure_background(name, home, quick)


async def _measure_background(name: str, home: Path, quick: bool) -> Result:
    settings = Settings(rem_home=home)
    match name:
        case "jobs":
            return await jobs.run(settings, 300, 30) if quick else await jobs.run(settings)
        case "ingest":
            return await ingest.run(settings, 30, 1) if quick else await ingest.run(settings)
        case "dreaming":
            return await dreaming.run(settings, (40, 200) if quick else dreaming.SIZES)
        case "encryption":
            return await encryption.run(home, 300, 50) if quick else await encryption.run(home)
        case "partitions":
            return await partitions.run(settings, partitions.QUICK) if quick else await partitions.run(settings)
        case "http":
            return await http_lookup.run(home, 50) if quick else await http_lookup.run(home)
        case "web":
            return await web.run(home, 500, 200, 100) if quick else await web.run(home)
        case "attacks":
            return await attacks.run(home, attacks.QUICK) if quick else await attacks.run(home)
    return await startup.run(home)
