"""What is slow to load is loaded in other threads than that of the event loop, so that other requests go on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.rem_command import REPOSITORY, environment

_LOADED_FILES = (".onnx", ".npy", "tokenizer.json")
_SCRIPT = """
import asyncio, json, sys, threading
import httpx2

slow = {"numpy", "onnxruntime", "tokenizers", "genai_prices.data"}
on_loop, elsewhere = set(), set()
is_started = False

def note(event, arguments):
    if not is_started or event not in ("import", "open"):
        return
    name = str(arguments[0])
    if event == "import" and name not in slow and not name.startswith("rem.dreams."):
        return
    if event == "open" and not name.endswith(FILES):
        return
    (on_loop if threading.current_thread() is threading.main_thread() else elsewhere).add(name)

sys.addaudithook(note)
from rem.api.main import SLOW_MODULES, create_app
from rem.settings import Settings
from tests.api.live_server import client, served

async def main():
    global is_started
    app = create_app(Settings())
    is_started = True
    async with served(app) as address, client(address, "alice@example.com") as http:
        while not set(SLOW_MODULES) <= set(sys.modules):
            await asyncio.sleep(0.05)
        answers = [
            await http.post("/api/v1/chat/completions", json={"messages": [{"role": "user", "content": TEXT}]}),
            await http.post("/api/v1/query", json={"query": "SEARCH sister"}),
            await http.post("/api/v1/dreams", json={}, timeout=120),
        ]
    print(json.dumps([[answer.status_code for answer in answers], sorted(on_loop), sorted(elsewhere)]))

TEXT = "My sister Anna Berg lives in Porto and works for Siemens."
asyncio.run(main())
"""


def test_models_and_slow_modules_are_not_loaded_in_the_event_loop(dsn: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"FILES = {_LOADED_FILES!r}\n{_SCRIPT}"],
        cwd=REPOSITORY,
        env=environment({"REM_HOME": str(tmp_path), "POSTGRES__CONNECTION_STRING": dsn}),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    statuses, on_loop, elsewhere = json.loads(done.stdout.splitlines()[-1])
    assert statuses == [200, 200, 200]
    assert on_loop == []
    # The models were loaded, in another thread.
    assert "onnxruntime" in elsewhere
    assert any(name.endswith(_LOADED_FILES) for name in elsewhere)
