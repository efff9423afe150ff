"""List the files of REM that a flow walks through: `python -m tooling.flows [NAME ...] [--json]`.

A file counts if one of its functions runs because of the flow, or, of an `.sql` file, a named statement or a function
of the database. PostgreSQL does not count a function in SQL that it inlines into the statement that calls it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import TypeAlias
from uuid import uuid4

import asyncpg
import httpx2 as httpx

import rem as package
from rem import NewMessage, Rem, Role, Settings
from rem.agents.service import Agents
from rem.api.main import create_app
from rem.context import Scope
from rem.db.embedded.server import EmbeddedServer
from rem.db.sql import parse_blocks
from rem.jobs.worker import Worker
from rem.log_output import log_to_stderr

ROOT = Path(package.__file__).parent
_DRIVER = Path(asyncpg.__file__).parent
_FUNCTION = re.compile(r"^CREATE (?:OR REPLACE )?FUNCTION (?:rem\.)?(\w+)", re.MULTILINE)
_PART = re.compile(r"\{\w+\}")
_SPACE = re.compile(r"\s+")
MIN_PART_CHARS = 40
"""A shorter block may be in other statements by chance: it counts if it is the whole statement."""
MAX_PART_CHARS = 300
"""Of what the code fills into a statement."""
WAIT_SECONDS = 30
WARM_UPS = 2
USER, GUEST = "alice@example.com", "bob@example.com"
"""Who walks, and whose memory warms up the flows that change it."""
NOTE = """# The harbour project

Sarah Chen leads the harbour project. It opens on 2026-05-04.

## Budget

The budget of the harbour project is 40,000 euros, and Miguel Okafor signs the invoices.
"""
TURNS = (
    "I met Sarah Chen at the harbour this morning; we plan the ferry together.",
    "Sarah Chen works with Miguel Okafor on the harbour project.",
    "My favourite colour is green, and I live in Lisbon.",
    "Tomorrow at nine we meet Miguel Okafor about the budget of the harbour project.",
)

_in_flow: ContextVar[bool] = ContextVar("in_flow", default=False)


@dataclass(frozen=True, slots=True)
class World:
    """What a flow runs on: REM behind its HTTP API, in this process."""

    rem: Rem
    http: httpx.AsyncClient
    agents: Agents


@dataclass(slots=True)
class Recorder:
    """Notes which files run. Installed before the first thread starts, so that it sees all of them."""

    files: dict[Path, None] = field(default_factory=dict)
    """In the order of their first call."""
    statements: set[str] = field(default_factory=set)
    is_on: bool = False
    _kinds: dict[CodeType, Path | str | None] = field(default_factory=dict)

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Note the file or the statement of a call. A thread of a pool may run without the context of its caller."""
        if not self.is_on or event != "call":
            return
        if threading.current_thread() is threading.main_thread() and not _in_flow.get():
            return
        code = frame.f_code
        if code not in self._kinds:
            self._kinds[code] = _classify(code)
        match self._kinds[code]:
            case Path() as path:
                self.files[path] = None
            case "statement":
                values = frame.f_locals
                text = values.get("query") or getattr(values.get("self"), "_query", None)
                if isinstance(text, str):
                    self.statements.add(text)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what runs because of the block."""
        self.files.clear()
        self.statements.clear()
        token = _in_flow.set(True)
        self.is_on = True
        try:
            yield
        finally:
            self.is_on = False
            _in_flow.reset(token)


def _classify(code: CodeType) -> Path | str | None:
    path = Path(code.co_filename)
    if path.is_relative_to(ROOT):
        return None if code.co_name == "<module>" else path.relative_to(ROOT)
    if path.parent == _DRIVER and path.name in ("connection.py", "prepared_stmt.py"):
        return "statement"
    return None


Flow: TypeAlias = Callable[[World, str], Awaitable[None]]


async def lookup(world: World, user: str) -> None:
    """Look up a key through the API."""
    await _query(world, user, 'LOOKUP "harbour.md"')


async def search(world: World, user: str) -> None:
    """Search through the API."""
    await _query(world, user, 'SEARCH "who leads the harbour project"')


async def ask(world: World, user: str) -> None:
    """Ask a plain question of the library."""
    answer = await world.rem.for_user(user).ask("Who leads the harbour project?")
    assert answer.status == "answered"


async def chat(world: World, user: str) -> None:
    """Run one turn without a language model through the API."""
    body = {"messages": [{"role": "user", "content": "Who leads the harbour project?"}]}
    answer = await world.http.post("/api/v1/chat/completions", json=body, headers={"X-User-Id": user})
    assert answer.status_code == 200, answer.text


async def ingest(world: World, user: str) -> None:
    """Upload a Markdown file, process its job, and index its passages."""
    await _upload(world, user, f"note-{uuid4().hex}.md")
    await world.rem.for_user(user).index()


async def dream(world: World, user: str) -> None:
    """Dream about a small session and a file."""
    await world.rem.dreamer().dream(Scope.for_user(user))


async def _upload(world: World, user: str, name: str) -> None:
    """Upload a file, and wait until the worker has stored it."""
    answer = await world.http.post(
        f"/api/v1/files?wait={WAIT_SECONDS}",
        files={"files": (name, NOTE.encode(), "text/markdown")},
        headers={"X-User-Id": user},
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["data"][0]["status"] == "completed", answer.text


async def _query(world: World, user: str, query: str) -> None:
    answer = await world.http.post("/api/v1/query", json={"query": query}, headers={"X-User-Id": user})
    assert answer.status_code == 200, answer.text
    assert answer.json()["count"], answer.text


FLOWS: dict[str, Flow] = {
    "query": lookup,
    "search": search,
    "ask": ask,
    "chat": chat,
    "ingest": ingest,
    "dream": dream,
}


async def walk(names: Iterable[str], recorder: Recorder) -> dict[str, list[str]]:
    """Return the files of each flow: the modules in the order of their first call, then the `.sql` files."""
    walks = {}
    with tempfile.TemporaryDirectory(prefix="rem-flows-") as folder, ExitStack() as stack:
        home = Path(folder) / "home"
        stack.callback(EmbeddedServer(home).stop)
        async with _open_world(home) as world:
            async with _running_worker(world):
                for user in (USER, GUEST):
                    await _fill(world, user)
            for name in names:
                async with _running_worker(world) if name == "ingest" else nullcontext():
                    walks[name] = await _record(FLOWS[name], world, recorder)
    return walks


async def _record(flow: Flow, world: World, recorder: Recorder) -> list[str]:
    for _ in range(WARM_UPS):
        await flow(world, GUEST)
    before = await _count_calls(world.rem)
    with recorder.recording():
        await flow(world, USER)
    called = await _count_calls(world.rem) - before
    modules = [path.as_posix() for path in recorder.files]
    return modules + sorted(_find_blocks(recorder.statements) | _find_functions(called))


@asynccontextmanager
async def _open_world(home: Path) -> AsyncIterator[World]:
    """Serve the API in this process, without the loops of a worker."""
    settings = Settings.model_validate({"rem_home": home, "worker": {"in_process": False}})
    async with Rem.open(settings) as rem, rem.database.unpooled_connection() as connection:
        await connection.execute("ALTER SYSTEM SET track_functions = 'all'")
        await connection.execute("SELECT pg_reload_conf()")
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as http:
            yield World(app.state.rem, http, app.state.agents)


@asynccontextmanager
async def _running_worker(world: World) -> AsyncIterator[None]:
    """Process jobs while the block runs. All that the worker does belongs to the flow."""
    worker = Worker(world.rem, world.rem.settings, schedules={})
    context = copy_context()
    context.run(_in_flow.set, True)
    task = asyncio.get_running_loop().create_task(worker.run(), context=context)
    try:
        yield
    finally:
        worker.stop()
        await task


async def _fill(world: World, user: str) -> None:
    """Store a file and a session."""
    await _upload(world, user, "harbour.md")
    messages = [NewMessage(role=Role.USER, content=text) for text in TURNS]
    await world.rem.for_user(user).sessions.append(uuid4(), messages, create_session=True)
    await world.rem.index()


async def _count_calls(rem: Rem) -> Counter[str]:
    """Let all connections report which functions of the database they ran, and return how often each of them did."""
    pool = rem.database.pool
    connections = [await pool.acquire() for _ in range(pool.get_size())]
    for connection in connections:
        await connection.execute("SELECT pg_stat_force_next_flush()")
    rows = await connections[0].fetch("SELECT funcname, sum(calls)::bigint FROM pg_stat_user_functions GROUP BY 1")
    for connection in connections:
        await pool.release(connection)
    return Counter({row[0]: row[1] for row in rows})


def _find_blocks(statements: Iterable[str]) -> set[str]:
    """Return the files with a named block that is part of a statement."""
    texts = {_SPACE.sub(" ", text) for text in statements}
    found = set()
    for path in ROOT.rglob("*.sql"):
        blocks = parse_blocks(path.read_text(encoding="utf-8")).values()
        if any(_is_part(block, texts) for block in blocks):
            found.add(path.relative_to(ROOT).as_posix())
    return found


def _is_part(block: str, texts: set[str]) -> bool:
    pieces = [_SPACE.sub(" ", piece).strip() for piece in _PART.split(block)]
    if sum(map(len, pieces)) < MIN_PART_CHARS:
        find = re.compile(r' ?[\w."]+ ?'.join(map(re.escape, pieces))).fullmatch
    else:
        find = re.compile(rf" ?.{{1,{MAX_PART_CHARS}}}? ?".join(map(re.escape, pieces))).search
    return any(find(text) for text in texts)


def _find_functions(names: Iterable[str]) -> set[str]:
    """Return the files that create these functions. The schema makes some that a file of functions replaces."""
    homes: dict[str, str] = {}
    for path in sorted(ROOT.rglob("*.sql"), key=lambda path: path.parent.name == "functions"):
        for name in _FUNCTION.findall(path.read_text(encoding="utf-8")):
            homes[name] = path.relative_to(ROOT).as_posix()
    return {homes[name] for name in names if name in homes}


def main() -> None:
    """Print the walks that the arguments name, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m tooling.flows", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(FLOWS)}; default: all.")
    parser.add_argument("--json", action="store_true", help="Print the files of each flow as JSON.")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - FLOWS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: there is no such flow.")
    log_to_stderr("WARNING", "text")
    recorder = Recorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    walks = asyncio.run(walk(arguments.names or FLOWS, recorder))
    sys.setprofile(None)
    print(json.dumps(walks, indent=2) if arguments.json else _format(walks))


def _format(walks: dict[str, list[str]]) -> str:
    lines = []
    for name, files in walks.items():
        lines += [f"{name}: {len(files)} files", *(f"{number:4} {file}" for number, file in enumerate(files, 1)), ""]
    if len(walks) > 1:
        lines += [f"{name:8}{len(files):4}" for name, files in walks.items()]
    return "\n".join(lines).rstrip()


if __name__ == "__main__":
    main()
