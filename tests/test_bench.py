"""The benchmarks run; what they measure is not judged here, because machines are noisy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from tests.conftest import find_memory_folder
from tests.rem_command import REPOSITORY

BENCHMARKS = ("bulk_load", "lookup", "fuzzy", "traverse", "search", "tenants", "backup")


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
