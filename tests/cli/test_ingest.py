"""`rem ingest`: folders, unreadable files, agents, and runs that are interrupted."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import pytest

from rem.app import Rem
from rem.db.embedded.server import EmbeddedServer
from rem.db.maintenance import check_mirrors
from rem.db.store import Store
from rem.ingest.models import IngestOptions
from rem.ingest.sources.fetch import list_sources
from rem.ingest.sources.policy import UNRESTRICTED
from rem.models import File, Ontology, Resource, Schema
from rem.settings import Settings
from tests.db.test_crash_recovery import connect_to, kill, wait_until
from tests.ingest.helpers import PAGE, everything
from tests.ingest.test_ingester import AGENT
from tests.rem_command import environment, output
from tests.rem_command import rem as run_rem

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
ALICE = "alice@example.com"


@pytest.fixture
def command(dsn: str) -> dict[str, str]:
    """Return the settings of the command."""
    return {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none"}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Return a folder with files of several formats."""
    folder = tmp_path / "docs"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "guide.md").write_text(PAGE, encoding="utf-8")
    (folder / "deep" / "data.csv").write_text("name,town\nAda,London\n", encoding="utf-8")
    (folder / "deep" / "er" / "main.py").write_text("def main() -> None:\n    pass\n", encoding="utf-8")
    return folder


def create_pages(folder: Path, files: int) -> Path:
    """Create a folder with many files of several chunks each."""
    folder.mkdir()
    for number in range(files):
        sections = "\n\n".join(f"## Part {part} of {number}\n\nSome words." for part in range(1 + number % 7))
        (folder / f"page-{number:03}.md").write_text(f"# Page {number}\n\n{sections}\n", encoding="utf-8")
    return folder


def run_ingest(*arguments: str, settings: dict[str, str], code: int = 0) -> dict[str, Any]:
    done = run_rem("ingest", *arguments, "--json", settings=settings)
    assert done.returncode == code, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


async def test_folder_is_ingested_once(command: dict[str, str], docs: Path, alice: Store) -> None:
    options = ("--user", ALICE, "--category", "manual", "--tag", "one", "--tag", "two")
    printed = output("ingest", str(docs), *options, settings=command)
    assert printed.startswith("3 files: 3 added; 5 chunks stored.\nRun ")
    assert [file.name for file in await alice.find(File, order_by="name")] == [
        "docs/deep/data.csv",
        "docs/deep/er/main.py",
        "docs/guide.md",
    ]
    assert {(row.category, tuple(row.tags)) for row in await alice.find(Resource)} == {("manual", ("one", "two"))}
    assert output("ingest", str(docs), *options, settings=command) == "3 files: 3 unchanged; 0 chunks stored.\n"
    (docs / "guide.md").write_text(PAGE.replace("make", "pip"), encoding="utf-8")
    assert run_ingest(str(docs), *options, settings=command)["counts"] == {"unchanged": 2, "changed": 1}


async def test_no_recursive_skips_subfolders(command: dict[str, str], docs: Path, shared: Store) -> None:
    assert output("ingest", str(docs), "--no-recursive", settings=command).startswith("1 file: 1 added")
    assert [file.name for file in await shared.find(File)] == ["docs/guide.md"]


async def test_unreadable_file_does_not_stop_the_others(command: dict[str, str], docs: Path, alice: Store) -> None:
    (docs / "a-empty.md").write_bytes(b"")
    (docs / "b-binary.txt").write_bytes(bytes(range(256)) * 20)
    (docs / "c-agent.yaml").write_text(AGENT.replace("name: release-helper", "nmae: x"), encoding="utf-8")
    done = run_rem("ingest", str(docs), str(docs / "missing.md"), "--user", ALICE, settings=command)
    assert done.returncode == 1
    assert done.stdout.startswith(
        "7 files: 3 added, 1 skipped, 3 failed; 5 chunks stored.\nSkipped: docs/a-empty.md is empty.\nRun "
    )
    for problem in ("docs/b-binary.txt is not a text", "docs/c-agent.yaml: The agent, line 4"):
        assert f"Failed: {problem}" in done.stderr
    assert f"no file {docs}/missing.md." in done.stderr
    assert "line 6" in done.stderr
    assert await alice.count(File, with_deleted=True) == 3
    # An empty file is not a failure.
    done = run_rem("ingest", str(docs / "a-empty.md"), "--user", ALICE, settings=command)
    assert (done.returncode, done.stderr) == (0, "")


async def test_agent_file_becomes_an_agent(command: dict[str, str], docs: Path, alice: Store) -> None:
    (docs / "helper.yaml").write_text(AGENT, encoding="utf-8")
    assert "4 added" in output("ingest", str(docs), "--user", ALICE, settings=command)
    assert [row.name for row in await alice.find(Schema)] == ["release-helper"]
    assert "unchanged" in output("ingest", str(docs), "--user", ALICE, settings=command)


async def test_wiki_is_loaded_into_the_knowledge_base(command: dict[str, str], docs: Path, alice: Store) -> None:
    assert "1 added" in output("ingest", str(docs / "guide.md"), "--as", "ontology", "--user", ALICE, settings=command)
    assert [row.name for row in await alice.find(Ontology)] == ["Guide"]
    # Ingesting the whole folder later keeps the form of the file.
    printed = output("ingest", str(docs), "--user", ALICE, settings=command)
    assert printed.startswith("3 files: 2 added, 1 unchanged;")
    assert [row.name for row in await alice.find(Ontology)] == ["Guide"]


def test_deleted_file_is_reported_with_the_restore_command(command: dict[str, str], docs: Path) -> None:
    output("ingest", str(docs / "guide.md"), "--user", ALICE, settings=command)
    output("delete", "files/guide.md", "--user", ALICE, settings=command)
    printed = output("ingest", str(docs / "guide.md"), "--user", ALICE, settings=command)
    assert printed.startswith("1 file: 1 deleted; 0 chunks stored.\n")
    assert "restore files guide.md --user alice@example.com" in printed
    output("restore", "files", "guide.md", "--user", ALICE, settings=command)
    assert "1 unchanged" in output("ingest", str(docs / "guide.md"), "--user", ALICE, settings=command)


def test_ingested_files_are_searchable_at_once(dsn: str, docs: Path) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    output("ingest", str(docs), settings=settings)
    printed = json.loads(output("db", "status", "--json", settings=settings))
    assert "guide.md#2" in output("query", 'SEARCH "how is it installed" LIMIT 1', settings=settings)
    assert printed


def test_run_is_listed_and_undone(command: dict[str, str], docs: Path) -> None:
    (docs / ".gitignore").write_text("deep\n", encoding="utf-8")
    report = run_ingest(str(docs), "--user", ALICE, settings=command)
    assert (report["counts"], report["ignored"]) == ({"added": 1}, {"gitignore": 1, "hidden": 1})
    run = report["run"]
    assert f"{run}  " in output("ingest", "runs", "--user", ALICE, settings=command)
    done = run_rem("ingest", "undo", run, settings=command)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"no ingest run {run} of this owner" in done.stderr
    printed = output("ingest", "undo", run, "--user", ALICE, settings=command)
    assert printed == f"Run {run}: erased 1 file with all chunks.\n"
    assert run_rem("ingest", "undo", run, "--user", ALICE, settings=command).returncode == 4
    assert "undone" in output("ingest", "runs", "--user", ALICE, settings=command)


def test_undo_names_what_stays(command: dict[str, str], docs: Path) -> None:
    run_ingest(str(docs / "guide.md"), settings=command)
    (docs / "guide.md").write_text(PAGE.replace("make", "pip"), encoding="utf-8")
    (docs / "helper.yaml").write_text(AGENT, encoding="utf-8")
    run = run_ingest(str(docs), settings=command)["run"]
    printed = output("ingest", "undo", run, settings=command)
    assert printed.startswith(f"Run {run}: erased 3 files with all chunks.\n")
    assert "guide.md: existed before, so it stays with the text of this run" in printed
    assert "docs/helper.yaml: defined an agent, which stays" in printed


def test_run_that_only_updated_files_has_nothing_to_undo(command: dict[str, str], docs: Path) -> None:
    run_ingest(str(docs / "guide.md"), settings=command)
    (docs / "guide.md").write_text(PAGE.replace("make", "pip"), encoding="utf-8")
    updated = output("ingest", str(docs / "guide.md"), settings=command)
    assert "1 changed" in updated
    assert "undo" not in updated
    run = output("ingest", "runs", settings=command).split()[0]
    printed = output("ingest", "undo", run, settings=command)
    assert printed.startswith(f"Run {run} added no files, it only updated some: there is nothing to erase.\nguide.md: ")


async def test_dry_run_lists_the_files_and_stores_nothing(command: dict[str, str], docs: Path, shared: Store) -> None:
    printed = output("ingest", str(docs), "--dry-run", "--exclude", "*.py", settings=command)
    assert printed == (
        "added      docs/deep/data.csv (1 chunk)\n"
        "added      docs/guide.md (3 chunks)\n"
        "2 files: 2 added. Nothing was stored (--dry-run).\n"
        "Ignored: 1 by --exclude.\n"
    )
    assert await shared.count(File) == 0


def test_file_with_the_name_of_a_command_is_reached_by_its_path(command: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "undo").write_text("Take it back.", encoding="utf-8")
    assert "1 added" in output("ingest", "./undo", settings=command, cwd=tmp_path)
    assert "1 unchanged" in output("ingest", "add", "undo", settings=command, cwd=tmp_path)
    # Options may come first.
    assert "1 unchanged" in output("ingest", "--no-recursive", "./undo", settings=command, cwd=tmp_path)


async def test_watch_follows_a_folder_until_it_is_interrupted(
    command: dict[str, str], docs: Path, alice: Store
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rem", "ingest", str(docs), "--watch", "--user", ALICE),
        env=environment({**command, "PYTHONUNBUFFERED": "1"}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    async with asyncio.timeout(90):
        while (line := await process.stdout.readline()) != b"Watching. Stop with Ctrl-C.\n":
            assert line, await process.communicate()
        (docs / "new.md").write_text("# News\n\nHot.\n", encoding="utf-8")
        assert await process.stdout.readline() == b"added: docs/new.md (1 chunk)\n"
        assert await alice.lookup("News")
        (docs / "new.md").unlink()
        assert await process.stdout.readline() == b"removed: docs/new.md\n"
        process.send_signal(signal.SIGINT)
        _, errors = await process.communicate()
    assert process.returncode == 0
    assert b"Stored so far: 4 added" in errors
    assert b"Traceback" not in errors


def test_watch_takes_neither_dry_run_nor_json(command: dict[str, str], docs: Path) -> None:
    for option in ("--dry-run", "--json"):
        done = run_rem("ingest", str(docs), "--watch", option, settings=command)
        assert (done.returncode, done.stdout) == (2, "")


async def ingest_folder(rem: Rem, folder: Path, user: str) -> None:
    listing = await list_sources(str(folder), UNRESTRICTED, rem.settings.ingest)
    ingester = rem.for_user(user).ingester(policy=UNRESTRICTED)
    report = await ingester.ingest_sources(listing.sources, IngestOptions())
    assert not report.failures


async def ingest_and_interrupt(
    folder: Path, settings: dict[str, str], sql: Connection, how: signal.Signals
) -> tuple[int, str]:
    """Start to ingest a folder, end it by a signal while it stores a file, and return the exit code and stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rem", "ingest", str(folder), "--user", ALICE),
        env=environment(settings),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    await wait_until(sql, "(SELECT count(*) FROM rem.files) >= 10")
    async with sql.transaction():
        await sql.execute("LOCK TABLE rem.edges IN SHARE MODE")
        await wait_until(sql, "EXISTS (SELECT FROM pg_locks WHERE relation = 'rem.edges'::regclass AND NOT granted)")
        process.send_signal(how)
        if how is signal.SIGKILL:
            await process.wait()
    _, errors = await process.communicate()
    return await process.wait(), errors.decode()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
async def test_interrupted_run_is_completed_by_the_next(
    command: dict[str, str], tmp_path: Path, rem: Rem, alice: Store, bob: Store, sql: Connection, how: signal.Signals
) -> None:
    folder = create_pages(tmp_path / "pages", 150)
    code, printed = await ingest_and_interrupt(folder, command, sql, how)
    assert code == (-9 if how is signal.SIGKILL else 130)
    stored = await alice.count(File)
    if how is signal.SIGINT:
        assert f"Stored so far: {stored} added" in printed
        assert "ingest undo " in printed
    assert 10 <= stored < 150
    assert (await check_mirrors(rem.database)).is_exact
    report = run_ingest(str(folder), "--user", ALICE, settings=command)
    # The statement that kill -9 interrupted may still have been completed.
    assert report["counts"]["unchanged"] >= stored
    await ingest_folder(rem, folder, "bob@example.com")
    assert await everything(alice) == await everything(bob)
    assert (await check_mirrors(rem.database)).is_exact


async def test_killed_database_does_not_change_the_result(home: Path, tmp_path: Path) -> None:
    folder = create_pages(tmp_path / "pages", 150)
    settings = {"REM_HOME": str(home), "EMBEDDING__PROVIDER": "none"}
    EmbeddedServer(home).ensure_running()
    output("db", "migrate", settings=settings)
    connection = await connect_to(home)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rem", "ingest", str(folder), "--user", ALICE),
        env=environment(settings),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    await wait_until(connection, "(SELECT count(*) FROM rem.files) >= 10")
    await asyncio.to_thread(kill, home, with_children=True)
    connection.terminate()
    assert await process.wait() in (0, 5)
    report = await asyncio.to_thread(run_ingest, str(folder), "--user", ALICE, settings=settings)
    assert not report["counts"].get("failed")
    async with Rem.open(Settings(rem_home=home)) as rem:
        await ingest_folder(rem, folder, "bob@example.com")
        alice, bob = rem.for_user(ALICE).store, rem.for_user("bob@example.com").store
        assert await alice.count(File) == 150
        assert await everything(alice) == await everything(bob)
        assert (await check_mirrors(rem.database)).is_exact
