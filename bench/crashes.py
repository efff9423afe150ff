"""Kill commands and their database server at random moments, start them again, and count what is lost or half written.

`python -m bench crashes` kills each operation 20 times: with SIGKILL, the command, the server (the postmaster, whose
children end by themselves), or both. A writer stores rows meanwhile; those that REM acknowledged must all be there.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from bench.measure import Result, print_progress
from rem import Message, Rem, Resource, Session, Settings
from rem.db.database import Database
from rem.db.embedded.server import EmbeddedServer
from rem.db.sql import parse_blocks
from rem.errors import EmbeddedServerError, RemError

ROUNDS = 20
FILES = 40
MESSAGES = 60
ROWS = 2_000
KEEPER = "keeper"
READER = "reader"
LONGEST_SECONDS = 300.0
CONFLICT = 4
"""The exit code of a command that would replace what is there."""
QUICK = ("ingest", "restore")
PURCHASES = 10
"""Messages about a topic, before a pause of days."""
TOPICS = (
    ("kayak", "paddle helmet anchor compass rope jacket float pump seat bag"),
    ("wedding", "cake dress ring band tent invitation bouquet veil menu carriage"),
    ("garden", "spade rake hose tulip fence bench hedge seed pond gnome"),
    ("kitchen", "oven kettle sink tap fridge toaster grill pan whisk ladle"),
    ("marathon", "shoe bandage watch gel belt cap towel medal vest bottle"),
    ("nursery", "cradle rattle blanket stroller crayon puzzle teddy lamp mobile crib"),
)
WAYS = ("command", "server", "both")
_SQL = parse_blocks((Path(__file__).parent / "crashes.sql").read_text())


@dataclass(slots=True)
class Outcome:
    """What the kills of one operation did."""

    rounds: int = 0
    killed: int = 0
    """The rounds in which the command had not ended before the kill."""
    acknowledged_rows: int = 0
    """Those stored during the rounds. The rows from before are looked for after each round, too."""
    lost_rows: list[str] = field(default_factory=list)
    half_written: list[str] = field(default_factory=list)
    failed_repeats: list[str] = field(default_factory=list)


class Operation(Protocol):
    """A command that is killed."""

    name: str

    async def prepare(self, number: int) -> Path:
        """Make what the command of a round works on, and return the REM_HOME that it uses."""

    def command(self, number: int) -> list[str]:
        """Return the arguments of the command."""

    async def find_half_written(self, home: Path, number: int) -> list[str]:
        """Return what is neither as before the command nor as after it."""

    async def find_missing(self, home: Path, number: int) -> list[str]:
        """Return what the repeated command should have made and did not."""


class Ingest:
    """`rem ingest` of a folder."""

    name = "ingest"

    def __init__(self, home: Path, files: int) -> None:
        self._home = home
        self._folder = home.with_name("documents")
        self._folder.mkdir()
        for number in range(files):
            sections = [f"## Part {part}\n\n{_sentence(number * 7 + part)} " * 6 for part in range(5)]
            (self._folder / f"page-{number}.md").write_text(f"# Page {number}\n\n" + "\n\n".join(sections))
        self._expected: list[str] = []

    async def prepare(self, number: int) -> Path:
        """Use another user in each round."""
        return self._home

    def command(self, number: int) -> list[str]:
        """Return the arguments of the command."""
        return ["ingest", str(self._folder), "--user", f"ingest-{number}"]

    async def find_half_written(self, home: Path, number: int) -> list[str]:
        """Return files without all their chunks, and chunks without their file."""
        return await _fetch(home, "half_ingested", f"ingest-{number}")

    async def find_missing(self, home: Path, number: int) -> list[str]:
        """Return the chunks that the first, undisturbed round made and this one did not, or the other way round."""
        chunks = await _fetch(home, "ingested", f"ingest-{number}")
        self._expected = self._expected or chunks
        return sorted(set(self._expected) ^ set(chunks)) + [f"twice: {len(chunks)}"] * (len(chunks) != len(set(chunks)))


class Dream:
    """`rem dreaming full` of one user."""

    name = "dream"

    def __init__(self, home: Path, messages: int) -> None:
        self._home = home
        self._messages = messages
        self._expected: list[str] = []

    async def prepare(self, number: int) -> Path:
        """Store the same talk for another user."""
        async with Rem.open(Settings(rem_home=self._home)) as rem:
            store = rem.for_user(f"dream-{number}").store
            session = await store.upsert(Session(name="Talk"))
            started = datetime(2026, 3, 2, 9, tzinfo=UTC)
            await store.upsert_many(
                Message(
                    session_id=session.id,
                    message_index=index,
                    role="user",
                    content=_purchase(index),
                    created_at=started + timedelta(days=3 * (index // PURCHASES), hours=index % PURCHASES),
                )
                for index in range(self._messages)
            )
            await rem.for_user(f"dream-{number}").index()
        return self._home

    def command(self, number: int) -> list[str]:
        """Return the arguments of the command."""
        return ["dreaming", "full", "--user", f"dream-{number}"]

    async def find_half_written(self, home: Path, number: int) -> list[str]:
        """Return moments without sources, and what the audit finds."""
        audit = await asyncio.to_thread(_call_rem, home, "dreaming", "audit", "--user", f"dream-{number}")
        found = await _fetch(home, "without_sources", f"dream-{number}")
        return found if audit.returncode == 0 else [*found, f"audit: {audit.stdout[-300:]}{audit.stderr[-300:]}"]

    async def find_missing(self, home: Path, number: int) -> list[str]:
        """Return the moments that differ from those of the first, undisturbed round."""
        moments = await _fetch(home, "dreamt", f"dream-{number}")
        self._expected = self._expected or moments
        return sorted(set(self._expected) ^ set(moments))


class Migration:
    """`rem db migrate` of a new memory: the schema is one migration, and to roll it back is to delete every row."""

    name = "migration"

    def __init__(self, home: Path) -> None:
        self._home = home

    async def prepare(self, number: int) -> Path:
        """Choose a folder that does not exist."""
        return self._home.with_name(f"new-{number}")

    def command(self, number: int) -> list[str]:
        """Return the arguments of the command."""
        return ["db", "migrate"]

    async def find_half_written(self, home: Path, number: int) -> list[str]:
        """Return nothing: the repeated command shows whether a migration was half applied."""
        return []

    async def find_missing(self, home: Path, number: int) -> list[str]:
        """Return what `rem doctor` finds."""
        return _find_problems(home)


class Backup:
    """`rem db backup`."""

    name = "backup"

    def __init__(self, home: Path) -> None:
        self._home = home
        self._folder = home.with_name("backups")
        self._folder.mkdir(exist_ok=True)

    async def prepare(self, number: int) -> Path:
        """Use the shared memory."""
        return self._home

    def command(self, number: int) -> list[str]:
        """Return the arguments of the command."""
        return ["db", "backup", str(self.file(number))]

    def file(self, number: int) -> Path:
        """Return the file of a round."""
        return self._folder / f"{number}.backup"

    async def find_half_written(self, home: Path, number: int) -> list[str]:
        """Return a file with the name of a backup that cannot be restored."""
        file = self.file(number)
        if not file.exists():
            return []
        problems = await _restore_elsewhere(home, file)
        # The command was killed after it had ended, or its server was.
        file.unlink()
        return problems

    async def find_missing(self, home: Path, number: int) -> list[str]:
        """Return what cannot be restored, and unfinished files that were left."""
        left = [f"left: {path.name}" for path in self._folder.glob(f"{self.file(number).name}.*")]
        return [*await _restore_elsewhere(home, self.file(number)), *left] if number % 5 == 0 else left


class Restore:
    """`rem db restore` into a new folder."""

    name = "restore"

    def __init__(self, home: Path) -> None:
        self._home = home
        self._file = home.with_name("restored.backup")

    async def prepare(self, number: int) -> Path:
        """Make a backup once, and a server without memories in a new folder."""
        if not self._file.exists():
            _call_rem(self._home, "db", "backup", str(self._file)).check_returncode()
        home = self._home.with_name(f"restored-{number}")
        _call_rem(home, "db", "start").check_returncode()
        return home

    def command(self, number: int) -> list[str]:
        """Return the arguments of the command."""
        return ["db", "restore", str(self._file)]

    async def find_half_written(self, home: Path, number: int) -> list[str]:
        """Return a memory that answers with some rows, but not as one that was restored to the end."""
        # A program that the killed command had started may still be at work.
        await asyncio.sleep(1)
        answered = _call_rem(home, "query", "SQL SELECT count(*) FROM resources", "--user", KEEPER, "--json")
        if answered.returncode != 0 or json.loads(answered.stdout)["results"][0]["count"] == 0:
            return []
        return await _compare(self._home, home) + _find_problems(home)

    async def find_missing(self, home: Path, number: int) -> list[str]:
        """Return what differs from the memory that was backed up."""
        return await _compare(self._home, home)


async def run(home: Path, rounds: int = ROUNDS, names: Sequence[str] = (), sizes: float = 1.0) -> Result:
    """Kill each operation in `rounds` rounds, or only those named."""
    result = Result("crashes")
    source = random.Random(11)
    stored = await _fill(home, int(ROWS * sizes))
    operations: list[Operation] = [
        Ingest(home, max(2, int(FILES * sizes))),
        Dream(home, max(10, int(MESSAGES * sizes))),
        Migration(home),
        Backup(home),
        Restore(home),
    ]
    for operation in operations:
        if names and operation.name not in names:
            continue
        outcome = await _kill_often(operation, home, rounds, source, stored)
        result.figures[operation.name] = asdict(outcome)
        name = operation.name
        result.check(f"acknowledged rows lost: {name}", len(outcome.lost_rows), 0)
        result.check(f"half-written states seen: {name}", len(outcome.half_written), 0)
        result.check(f"repeated commands that failed: {name}", len(outcome.failed_repeats), 0)
    return result


async def _fill(home: Path, rows: int) -> set[str]:
    """Store rows, and return their names."""
    resources = [Resource(name=f"Old {number}", content=_sentence(number)) for number in range(rows)]
    async with Rem.open(Settings(rem_home=home)) as rem:
        await rem.for_user(KEEPER).store.upsert_many(resources)
        await rem.index()
    return {resource.name for resource in resources}


async def _kill_often(
    operation: Operation, home: Path, rounds: int, source: random.Random, stored: set[str]
) -> Outcome:
    """Kill an operation in each round. Add the rows that were acknowledged meanwhile to `stored`: all must be kept."""
    outcome = Outcome()
    place = await operation.prepare(0)
    started = time.perf_counter()
    _call_rem(place, *operation.command(0)).check_returncode()
    seconds = time.perf_counter() - started
    await operation.find_missing(place, 0)
    await _remove(place, home)
    for number in range(1, rounds + 1):
        place = await operation.prepare(number)
        way = WAYS[number % len(WAYS)]
        async with _writing(place if place == home else None, outcome) as acknowledged:
            moment = source.uniform(0.1, 0.9) * seconds
            was_killed = await _kill(place, operation.command(number), way, moment)
        outcome.rounds += 1
        outcome.killed += was_killed
        stage = f"{operation.name}, round {number}, {way} killed after {moment:.1f} s"
        outcome.half_written += [f"{stage}: {found}" for found in await operation.find_half_written(place, number)]
        again = await asyncio.to_thread(_call_rem, place, *operation.command(number))
        # What the first try has completed is refused, or changes nothing.
        if again.returncode not in (0, CONFLICT):
            outcome.failed_repeats.append(f"{stage}: {again.stderr[-500:]}")
        else:
            missing = await operation.find_missing(place, number)
            outcome.failed_repeats += [f"{stage}: {found}" for found in missing]
        stored.update(acknowledged)
        outcome.lost_rows += [f"{stage}: {name}" for name in stored - set(await _fetch(home, "kept_rows"))]
        print_progress(
            f"crashes, {stage} of {seconds:.1f}: {len(acknowledged)} rows acknowledged, {len(outcome.lost_rows)} lost, "
            f"{len(outcome.half_written)} half written, {len(outcome.failed_repeats)} failed repeats so far"
        )
        try:
            await _remove(place, home)
        except EmbeddedServerError as error:
            outcome.failed_repeats.append(f"{stage}: {error}")
    return outcome


@asynccontextmanager
async def _writing(home: Path | None, outcome: Outcome) -> AsyncIterator[list[str]]:
    """Store rows while the block runs. Yield the names of those that were acknowledged."""
    acknowledged: list[str] = []

    async def write() -> None:
        while True:
            # The server is killed, too.
            with suppress(RemError):
                async with Rem.open(Settings(rem_home=home)) as rem:
                    while True:
                        name = f"New {time.time_ns()}"
                        await rem.for_user(KEEPER).store.upsert(
                            Resource(name=name, content=_sentence(len(acknowledged)))
                        )
                        acknowledged.append(name)
                        await asyncio.sleep(0.02)

    task = asyncio.create_task(write()) if home else None
    try:
        yield acknowledged
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        outcome.acknowledged_rows += len(acknowledged)


async def _kill(home: Path, arguments: list[str], way: str, moment: float) -> bool:
    """Start a command, kill it or its server or both at a moment. Return whether it still ran then."""
    process = await asyncio.create_subprocess_exec(
        *_rem_command(), *arguments, env=_environment(home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), moment)
    is_running = process.returncode is None
    pid = EmbeddedServer(home).status().pid if home.exists() else None
    if way != "command" and pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if way != "server" and is_running:
        process.kill()
    await asyncio.wait_for(process.wait(), LONGEST_SECONDS)
    return is_running


async def _restore_elsewhere(home: Path, file: Path) -> list[str]:
    place = home.with_name("checked")
    try:
        done = _call_rem(place, "db", "restore", str(file))
        return [] if done.returncode == 0 else [f"cannot be restored: {done.stderr[-300:]}"]
    finally:
        await _remove(place, home)


async def _compare(home: Path, restored: Path) -> list[str]:
    """Return what the user with the rows misses in a restored memory. The other one may have got more rows since."""
    missing = set(await _fetch(restored, "kept_rows")) - set(await _fetch(home, "kept_rows"))
    old = [name for name in await _fetch(restored, "kept_rows") if name.startswith("Old ")]
    expected = [name for name in await _fetch(home, "kept_rows") if name.startswith("Old ")]
    return [f"unknown row {name}" for name in missing] + [f"{len(old)} of {len(expected)} rows"] * (old != expected)


async def _remove(place: Path, home: Path) -> None:
    """Stop and delete a memory that was made for one round."""
    if place != home and place.exists():
        EmbeddedServer(place).stop()
        shutil.rmtree(place)


async def _fetch(home: Path, name: str, *parameters: Any) -> list[str]:
    connection = await asyncpg.connect(Database(Settings(rem_home=home)).get_connection_string())
    try:
        if not await connection.fetchval(_SQL["has_schema"]):
            return []
        return sorted(row[0] for row in await connection.fetch(_SQL[name], *parameters))
    finally:
        await connection.close()


def _find_problems(home: Path) -> list[str]:
    done = _call_rem(home, "doctor", "--json")
    return [f"{check['name']}: {check['finding']}" for check in json.loads(done.stdout) if check["mark"] == "problem"]


def _call_rem(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_rem_command(), *arguments],
        env=_environment(home),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_SECONDS,
    )


def _rem_command() -> list[str]:
    return [str(Path(sys.executable).with_name("rem"))]


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "REM_HOME": str(home)}


def _purchase(number: int) -> str:
    """Return a message about one topic after the other: what a dream makes of them hangs on no rounded number."""
    topic, things = TOPICS[number // PURCHASES % len(TOPICS)]
    thing = things.split()[number % PURCHASES]
    return f"For the {topic} I bought a {thing}, which cost {number * 7 + 10} EUR at the {thing} shop."


def _sentence(number: int) -> str:
    chance = random.Random(number)
    who, where = chance.choice(("Sarah", "Bob", "Mia", "Noor")), chance.choice(("Lisbon", "Oslo", "Turin", "Cork"))
    return f"{who} and I met in {where} about the harbour project, and she pays {chance.randint(10, 900)} EUR for it."
