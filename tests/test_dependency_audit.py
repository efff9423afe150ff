"""`make audit`: known vulnerabilities in the locked dependencies, from a list and from the registry."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tooling.audit_dependencies import LOCK, find_known, read_lock

from tests.rem_command import REPOSITORY


def test_locked_versions_have_no_known_vulnerability() -> None:
    pins = read_lock(LOCK)
    assert len(pins) > 100
    assert list(find_known(pins)) == []


def test_line_without_a_version_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("a==1\n# b\nrem @ https://example.com/rem.whl\n", encoding="utf-8")
    with pytest.raises(ValueError, match="not pinned"):
        read_lock(lock)


@contextmanager
def registry(answers: dict[str, Any]) -> Iterator[str]:
    """Serve documents of packages, and yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            document = answers.get(self.path)
            self.send_response(200 if document is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(document or {}).encode())

        def log_message(self, *_arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def audit(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tooling.audit_dependencies", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60)


def test_findings_of_the_registry_fail_and_are_listed(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("Some_Package[extra]==1.0 ; python_version > '3'\n    # via rem\nother==2.0\n", encoding="utf-8")
    known = {"id": "PYSEC-2026-1", "fixed_in": ["1.1"], "withdrawn": None}
    withdrawn = {"id": "PYSEC-2026-2", "fixed_in": [], "withdrawn": "2026-01-01T00:00:00Z"}
    good = {"/pypi/other/2.0/json": {"vulnerabilities": [withdrawn]}}
    with registry({**good, "/pypi/some-package/1.0/json": {"vulnerabilities": [known]}}) as address:
        found = audit("--lock", str(lock), "--registry", address)
    assert found.returncode == 1
    assert "some-package 1.0: PYSEC-2026-1, fixed in 1.1" in found.stdout
    assert "PYSEC-2026-2" not in found.stdout
    with registry({**good, "/pypi/some-package/1.0/json": {"vulnerabilities": []}}) as address:
        clean = audit("--lock", str(lock), "--registry", address)
        assert (clean.returncode, clean.stdout) == (0, f"{address} knows no vulnerability in the 2 packages.\n")


def test_registry_that_cannot_tell_is_no_success(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("other==2.0\n", encoding="utf-8")
    with registry({}) as address:
        unknown = audit("--lock", str(lock), "--registry", address)
    assert unknown.returncode == 2
    assert "cannot tell the vulnerabilities (HTTP 404 for other 2.0)" in unknown.stdout
    assert audit("--lock", str(lock), "--offline").returncode == 0


def test_listed_version_fails_without_a_network(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("h11==0.14.0\n", encoding="utf-8")
    found = audit("--lock", str(lock), "--offline")
    assert found.returncode == 1
    assert "h11 0.14.0: CVE-2025-43859, fixed in 0.16.0" in found.stdout
