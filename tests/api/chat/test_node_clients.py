"""OpenAI's client for Node and the Vercel AI SDK read REM's events as chunks. Skipped without Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.api.chat.conftest import Chat

_FOLDER = Path(__file__).parent / "node"
_NODE, _NPM = shutil.which("node"), shutil.which("npm")

if _NODE and _NPM:
    # Without Node there is nothing to test, and nothing is left out silently: the module then has no tests.

    @pytest.fixture(scope="session")
    def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The script with its libraries beside it."""
        folder = tmp_path_factory.mktemp("node")
        for name in ("package.json", "clients.mjs"):
            shutil.copy(_FOLDER / name, folder)
        command = [str(_NPM), "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(command, cwd=folder, check=True, timeout=300, capture_output=True)
        return folder / "clients.mjs"

    @pytest.mark.parametrize("agent", ["rem", "simulator"])
    def test_the_clients_for_node_read_every_kind_of_event(chat: Chat, clients: Path, agent: str) -> None:
        done = subprocess.run(
            [str(_NODE), str(clients), chat.address, chat.user, agent],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said = {line["name"]: line["text"] for line in map(json.loads, done.stdout.splitlines())}
        assert set(said) == {"openai naive", "openai runner", "openai whole", "vercel ai"}
        assert len(set(said.values())) == 1
        assert next(iter(said.values())).startswith("Hello from" if agent == "rem" else "#")
