"""Two API processes and two workers behind a proxy are killed one after another under load."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx2 as httpx
import pytest

from rem.app import Rem
from rem.jobs.queue import JobQueue
from rem.models import File
from tests.deployment.load import WriteLoad
from tests.deployment.proxy import running_proxy
from tests.deployment.servers import find_free_port
from tests.forked_process import ForkedProcess
from tests.jobs.conftest import eventually
from tests.rem_command import start_rem
from tests.scripted_model import Pause, ScriptedModel, last_text, scripted_model

USER = "alice@example.com"
WORDS = [f"word{number} " for number in range(40)]
FILES = 24
PARAGRAPHS = 60


class Deployment:
    """The processes, which are started again after they were killed, as Kubernetes does."""

    def __init__(self, settings: Mapping[str, str], folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self.ports = [find_free_port(), find_free_port()]
        self._processes: dict[str, ForkedProcess] = {}

    async def start(self, name: str) -> None:
        """Start `api-0`, `api-1`, `worker-0` or `worker-1`, and wait until an API process is ready."""
        kind, number = name.split("-")
        port = self.ports[int(number)]
        arguments = ("serve", "--port", str(port)) if kind == "api" else ("worker",)
        with (self._folder / f"{name}.log").open("a") as log:
            self._processes[name] = start_rem(*arguments, settings=self._settings, stderr=log)
        if kind == "api":
            await eventually(lambda: _is_ready(port), 180)

    def kill(self, name: str) -> None:
        """Kill a process at once."""
        self._processes[name].kill_with_children()
        self._processes[name].wait()

    def end(self) -> None:
        for process in self._processes.values():
            process.kill_with_children()
            process.wait()


async def _is_ready(port: int) -> bool:
    async with httpx.AsyncClient(timeout=5) as client:
        return (await client.get(f"http://127.0.0.1:{port}/health/ready")).status_code == 200


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    """A model that answers slowly."""
    with scripted_model() as model:
        model.script = lambda body: (
            [step for word in WORDS for step in (word, Pause(0.1))] if "slowly" in last_text(body) else ["Noted."]
        )
        yield model


@pytest.fixture
async def deployment(dsn: str, model: ScriptedModel, tmp_path: Path) -> AsyncIterator[Deployment]:
    """Two API processes and two workers."""
    deployment = Deployment(
        {
            "REM_HOME": str(tmp_path / "home"),
            "POSTGRES__CONNECTION_STRING": dsn,
            "LLM__BASE_URL": model.url,
            "LLM__OPENAI_API_KEY": "unused",
            "LLM__DEFAULT_MODEL": "openai:scripted",
            "WORKER__IN_PROCESS": "false",
            "WORKER__HEARTBEAT_SECONDS": "1",
            "WORKER__RETRY_SECONDS": "0.1",
            "WORKER__ATTEMPTS": "20",
        },
        tmp_path,
    )
    for name in ("api-0", "api-1", "worker-0", "worker-1"):
        await deployment.start(name)
    yield deployment
    deployment.end()


@asynccontextmanager
async def connect(address: str) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client that opens a new connection for each request, so that each goes to the next process."""
    async with httpx.AsyncClient(
        base_url=address,
        headers={"X-User-Id": USER},
        timeout=60,
        limits=httpx.Limits(max_keepalive_connections=0),
    ) as client:
        yield client


async def test_nothing_acknowledged_is_lost_and_nothing_is_done_twice(
    deployment: Deployment, rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with running_proxy(deployment.ports) as address, connect(address) as client:
        uploaded = [await _upload(client, number) for number in range(FILES)]
        load = WriteLoad(address)
        async with load.running():
            for name in ("api-0", "worker-0", "api-1", "worker-1"):
                await load.wait_for_writes(10)
                deployment.kill(name)
                await load.wait_for_writes(10)
                await deployment.start(name)
            await load.wait_for_writes(10)
        assert load.unexpected == []
        stored = {row["name"] for row in await sql.fetch("SELECT name FROM resources")}
        assert [name for name in load.acknowledged if name not in stored] == []
        await eventually(lambda: _is_empty(JobQueue(rem.database)), 180)
    assert (await JobQueue(rem.database).counts())["dead"] == 0
    files = await rem.for_user(USER).store.find(File, limit=1000)
    assert sorted(file.name for file in files) == sorted(uploaded)
    # A job that was interrupted ran again, and stored each chunk once.
    chunks = await sql.fetch(
        "SELECT count(*), count(DISTINCT content) FROM resources WHERE uri LIKE '%page-%' GROUP BY uri"
    )
    assert len(chunks) == FILES
    assert len({tuple(row) for row in chunks}) == 1


async def _upload(client: httpx.AsyncClient, number: int) -> str:
    name = f"page-{number}.md"
    text = "\n\n".join(
        f"## Part {part}\n\nThe mainsail of boat {part}. " + "It is torn. " * 20 for part in range(PARAGRAPHS)
    )
    answer = await client.post("/api/v1/files", files=[("files", (name, text.encode(), "text/markdown"))])
    assert answer.status_code == 202, answer.text
    return name


async def _is_empty(jobs: JobQueue) -> bool:
    counts = await jobs.counts()
    return not counts["queued"] and not counts["running"]


async def test_streams_of_other_processes_and_sessions_continue(deployment: Deployment, model: ScriptedModel) -> None:
    session = str(uuid4())
    async with running_proxy(deployment.ports) as address, connect(address) as client:
        await _chat(client, "My boat is the Albatross.", session)
        # The proxy gives one stream to each process.
        streams = [asyncio.create_task(_chat(client, "Answer slowly.", str(uuid4()))) for _ in range(2)]
        await eventually(lambda: _has_open_streams(model, 2), 60)
        deployment.kill("api-0")
        results = await asyncio.gather(*streams, return_exceptions=True)
        assert [result for result in results if result == "".join(WORDS)] == ["".join(WORDS)]
        assert sum(isinstance(result, httpx.TransportError) for result in results) == 1
        for number in range(2):
            assert await _chat(client, f"Continue {number}.", session) == "Noted."
        texts = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "user"]
        assert texts == ["My boat is the Albatross.", "Continue 0.", "Continue 1."]


async def _has_open_streams(model: ScriptedModel, number: int) -> bool:
    return model.open == number


async def _chat(client: httpx.AsyncClient, text: str, session: str) -> str:
    """Ask in a session, and return the text of the streamed answer."""
    body = {"model": "openai:scripted", "stream": True, "messages": [{"role": "user", "content": text}]}
    answer = ""
    async with client.stream(
        "POST", "/api/v1/chat/completions", json=body, headers={"X-Session-Id": session}
    ) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                answer += _read_text(json.loads(line.removeprefix("data: ")))
    return answer


def _read_text(chunk: dict[str, Any]) -> str:
    choices = chunk.get("choices") or [{}]
    return (choices[0].get("delta") or {}).get("content") or ""
