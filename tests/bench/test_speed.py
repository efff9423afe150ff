"""The benchmarks of speed run; what they measure is not judged here, because machines are noisy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from bench.__main__ import QUALITY, SPEED, SPEED_ON_REQUEST

from tests.bench.bench_command import bench, bench_output
from tests.conftest import find_memory_folder
from tests.rem_command import REPOSITORY

BENCHMARKS = ("bulk_load", "lookup", "fuzzy", "traverse", "search", "chat", "tenants", "backup")


def test_benchmarks_run_and_print_json() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", *BENCHMARKS],
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(find_memory_folder() or tempfile.gettempdir())},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    report = json.loads(done.stdout)
    assert set(report["results"]) == set(BENCHMARKS)
    assert report["results"]["bulk_load"]["rows"] == 5000
    backup = report["results"]["backup"]
    assert backup["differing_tables"] == []
    # The folder in memory may be small.
    assert [problem for problem in backup["problems"] if not problem.startswith("disk:")] == []
    assert len(report["checks"]) >= 10
    assert done.returncode == (0 if all(check["passed"] for check in report["checks"]) else 1)


def test_help_names_every_benchmark_and_imports_none() -> None:
    shown = bench_output("--help", settings={})
    assert [name for name in (*SPEED, *SPEED_ON_REQUEST, *QUALITY) if name not in shown] == []
    probe = "import sys, bench.__main__; print(sorted({'asyncpg', 'numpy', 'bench.speed'} & set(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-c", probe], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    assert loaded.strip() == "[]"


def test_unknown_benchmark_is_refused() -> None:
    refused = bench("lookup", "lokomo", settings={})
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "'lokomo'" in refused.stderr


def test_killed_commands_lose_nothing_and_leave_nothing_half_written() -> None:
    done = bench("--quick", "crashes", settings={})
    outcomes = json.loads(done.stdout)["results"]["crashes"]
    assert sorted(outcomes) == ["ingest", "restore"]
    for outcome in outcomes.values():
        assert outcome["rounds"] == 1
        assert [outcome["lost_rows"], outcome["half_written"], outcome["failed_repeats"]] == [[], [], []]
    assert outcomes["ingest"]["acknowledged_rows"] > 0
    assert done.returncode == 0
