"""`python -m tooling.flows` lists the files that a flow walks through."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson

_REPOSITORY = Path(__file__).parent.parent


def _walk(*names: str) -> dict[str, list[str]]:
    command = [sys.executable, "-m", "tooling.flows", "--json", *names]
    done = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, check=True)
    walks: dict[str, list[str]] = orjson.loads(done.stdout)
    return walks


def test_walks_name_modules_statements_and_functions_that_ran() -> None:
    walks = _walk("query", "ingest")
    lookup, ingest = set(walks["query"]), set(walks["ingest"])
    assert {"api/routes/query.py", "query/parser.py", "db/lookup.sql", "db/functions/lookup.sql"} <= lookup
    assert not any(name.startswith(("ingest/", "search/", "jobs/", "agents/")) for name in lookup)
    assert {"api/routes/files.py", "ingest/ingest.sql", "jobs/jobs.sql", "search/indexer.py"} <= ingest
    # Triggers of dreams run with each written row; none of their modules does.
    modules = {name for name in ingest if name.endswith(".py")}
    assert not any(name.startswith(("query/", "agents/", "dreams/", "cli/")) for name in modules)
