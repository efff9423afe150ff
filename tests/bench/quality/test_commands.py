"""`python -m bench`, searching by words only, because its metrics can be computed by hand."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.bench.bench_command import BENCH, bench, bench_environment, bench_output
from tests.bench.quality.sample_datasets import (
    LOCOMO,
    LONGMEMEVAL,
    longmemeval_entry,
    pack,
    write_beam,
    write_json,
    write_lines,
)

_TABLES = ("sessions", "messages", "resources")


@pytest.fixture
def env(dsn: str) -> dict[str, str]:
    """Return the settings of the test database, without an embedder."""
    return {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none"}


@pytest.fixture
def run_bench(env: dict[str, str], tmp_path: Path) -> Callable[..., tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return a function that runs a benchmark on the test database and returns its report and its rows."""

    def measure(*arguments: str | Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        words = [str(argument) for argument in arguments]
        report = json.loads(bench_output(*words, "--here", "--json", settings=env, cwd=tmp_path))
        lines = Path(report["rows"]).read_text(encoding="utf-8").splitlines()
        return report, [json.loads(line) for line in lines]

    return measure


async def count_rows(sql: asyncpg.Connection[asyncpg.Record]) -> list[int]:
    return [await sql.fetchval(f"SELECT count(*) FROM {table}") for table in _TABLES]


def test_longmemeval_finds_sessions(run_bench: Any, tmp_path: Path) -> None:
    twice = longmemeval_entry("q4", "sailboat", ["s-boat"], haystack_session_ids=["s-boat", "s-bread", "s-boat"])
    report, rows = run_bench("longmemeval", write_json(tmp_path / "longmemeval_s.json.gz", [*LONGMEMEVAL, twice]))
    assert (report["memories"], report["questions"], report["unjudged"], report["blank_messages"]) == (4, 4, 1, 4)
    assert report["overall"] == {
        "questions": 3,
        "metrics": {"recall_all@5": 0.6667, "recall_all@10": 0.6667, "recall_any@5": 1.0, "ndcg_any@10": 0.8333},
    }
    assert report["by_kind"]["multi-session"]["metrics"]["recall_all@5"] == 1.0
    assert report["by_kind"]["temporal-reasoning"]["metrics"] == {
        "recall_all@5": 0.0,
        "recall_all@10": 0.0,
        "recall_any@5": 1.0,
        "ndcg_any@10": 0.5,
    }
    assert [row["id"] for row in rows] == ["q1", "q2", "q3_abs", "q4"]
    assert rows[3]["found"] == ["s-boat"]
    assert set(rows[0]["found"]) == {"s-boat", "s-boat-2"}
    assert len(rows[0]["scores"]) == 2
    assert rows[2]["metrics"] is None
    assert rows[0]["asked_at"] == "2023-06-01T09:00:00+00:00"


async def test_messages_are_stored_unchanged(
    run_bench: Any, tmp_path: Path, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    run_bench("locomo", write_json(tmp_path / "locomo10.json", LOCOMO))
    assert await count_rows(sql) == [2, 4, 0]
    row = await sql.fetchrow("SELECT * FROM messages WHERE metadata ->> 'dia_id' = 'D2:2'")
    assert row is not None
    assert (row["content"], row["role"], row["user_id"]) == (
        "Zoë: Lovely! [shares photo: a red lighthouse]",
        "user",
        "conv-1",
    )
    assert row["created_at"].isoformat() == "2023-07-03T10:05:01+00:00"
    assert json.loads(row["metadata"]) == {"session_id": "session_2", "dia_id": "D2:2", "speaker": "Zoë"}
    assert row["tenant_id"].startswith("bench-locomo-")


def test_locomo_report_is_printed_as_a_table(env: dict[str, str], tmp_path: Path) -> None:
    write_json(tmp_path / "locomo10.json", LOCOMO)
    done = bench("locomo", str(tmp_path), "--here", "-o", "rows.jsonl", settings=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.stdout.startswith("locomo: 4 questions, 1 of them without a known answer, asked of 1 memory.\n")
    assert ["kind", "judged", "recall@5", "recall@10"] in lines
    assert ["adversarial", "0"] in lines
    assert ["single-hop", "1", "1.000", "1.000"] in lines
    assert ["multi-hop", "1", "0.500", "0.500"] in lines
    assert ["overall", "3", "0.833", "0.833"] in lines
    assert "Latency     p50 " in done.stdout
    assert "Made with   REM 0.1.0, no embedder, mode hybrid\n" in done.stdout
    assert "Throughput  4 rows stored in " in done.stdout
    assert "Skipped: 4 evidence ids that do not exist." in done.stderr
    assert "Note of 4 results: Searched by words alone" in done.stderr
    assert "The results of the questions are in rows.jsonl." in done.stderr
    assert "The data stays in the tenant bench-locomo-" in done.stderr
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    found = zip(rows, ("D1:1", "D2:1", "D2:2", "D2:2"), strict=True)
    assert all(said in row["found"] and len(row["found"]) == len(row["scores"]) for row, said in found)
    assert [row["metrics"] and row["metrics"]["recall@5"] for row in rows] == [1.0, 0.5, 1.0, None]


def test_beam_finds_messages(run_bench: Any, tmp_path: Path) -> None:
    archive = pack(write_beam(tmp_path / "unpacked"), tmp_path / "beam_100K.tar.gz")
    report, rows = run_bench("beam", archive, "--limit", "2")
    assert (report["memories"], report["questions"], report["unjudged"]) == (2, 8, 4)
    assert report["by_kind"]["information_extraction"] == {
        "questions": 2,
        "metrics": {"recall@5": 1.0, "recall@10": 1.0},
    }
    assert report["by_kind"]["knowledge_update"]["metrics"]["recall@10"] == 0.5
    assert report["by_kind"]["abstention"] == {"questions": 0, "metrics": {"recall@5": None, "recall@10": None}}
    assert report["overall"]["metrics"]["recall@5"] == 0.75
    assert rows[1]["id"] == "100K/1:information_extraction:1"
    assert "0" in rows[1]["found"]


def test_report_has_throughput_and_configuration(run_bench: Any, tmp_path: Path) -> None:
    report, rows = run_bench("locomo", write_json(tmp_path / "l.json", LOCOMO), "--mode", "text")
    assert report["throughput"]["rows"] == 4
    assert report["throughput"]["rows_per_second"] > 0
    whole = sorted(row["milliseconds"] for row in rows)
    assert report["latency_ms"]["whole"] == pytest.approx({"p50": whole[1], "p95": whole[3]}, abs=0.001)
    assert report["latency_ms"]["without_embedding"] == report["latency_ms"]["whole"]
    used = report["configuration"]
    assert (used["embedder"], used["mode"], used["limit"], used["concurrency"]) == ("none", "text", 10, 1)
    assert used["rem"] == "0.1.0"
    assert report["notes"] == {}


def test_own_corpus_is_measured_per_user(run_bench: Any, tmp_path: Path) -> None:
    corpus = write_lines(
        tmp_path / "c.jsonl",
        {"id": "käse", "text": "Der Gruyère reift im Keller."},
        {"id": "m1", "text": "The ferry leaves at noon.", "session": "trip", "time": "2024-05-01T10:00"},
        {"id": "m2", "text": "東京 の 地下鉄", "session": "talk", "role": "assistant"},
        {"id": "käse", "text": "A Gruyère of somebody else.", "user": "bob@example.com"},
    )
    questions = write_lines(
        tmp_path / "q.jsonl",
        {"question": "Gruyère", "expected": ["käse"], "kind": "food"},
        {"question": "When does the ferry leave?", "expected": ["m1", "m2"], "kind": "travel"},
        {"question": "ferry", "expected": ["käse"], "user": "bob@example.com"},
        {"question": "地下鉄", "expected": ["m2"], "id": "q-東京", "kind": "travel"},
    )
    report, rows = run_bench("own", corpus, questions, "--concurrency", "3")
    assert [(row["id"], row["found"]) for row in rows] == [
        ("line 1", ["käse"]),
        ("line 2", ["m1"]),
        ("q-東京", ["m2"]),
        ("line 3", []),
    ]
    assert report["overall"]["questions"] == 4
    assert report["overall"]["metrics"] == {
        "recall@1": 0.625,
        "recall@5": 0.625,
        "recall@10": 0.625,
        "recall_all@5": 0.5,
        "mrr@10": 0.75,
    }
    assert report["by_kind"]["travel"]["metrics"]["recall@5"] == 0.75
    again, same_rows = run_bench("own", corpus, questions)
    assert again["overall"] == report["overall"]
    assert [row["found"] for row in same_rows] == [row["found"] for row in rows]


@pytest.mark.parametrize(
    ("ids", "lines"), [(["Blue Door", "blue-door"], 2), (["Blue Door", *map(str, range(5_000)), "blue-door"], 5_002)]
)
async def test_texts_with_the_same_key_are_refused(
    env: dict[str, str], tmp_path: Path, sql: asyncpg.Connection[asyncpg.Record], ids: list[str], lines: int
) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", *({"id": one, "text": "a door"} for one in ids))
    questions = write_lines(tmp_path / "q.jsonl", {"question": "door", "expected": []})
    refused = bench("own", str(corpus), str(questions), "--here", settings=env, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "blue-door" in refused.stderr
    assert await count_rows(sql) == [0, 0, 0], f"nothing of {lines} lines is left"
    assert not (tmp_path / "rem-bench-own.jsonl").exists()


def test_invalid_file_fails_before_starting_a_server(tmp_path: Path) -> None:
    nowhere = {"POSTGRES__CONNECTION_STRING": "postgresql://nobody@127.0.0.1:1/x", "TMPDIR": str(tmp_path)}
    data = write_json(tmp_path / "data.json", [{"some": "thing"}])
    wrong = bench("longmemeval", str(data), settings=nowhere, cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith(f"Error: {data} is not a file of LongMemEval: entry 1: question_id: Field required;")
    good = write_json(tmp_path / "locomo.json", LOCOMO)
    for target, reason in (("no/such/rows.jsonl", "there is no folder no/such"), (".", "is a folder")):
        refused = bench("locomo", str(good), "--output", target, settings=nowhere, cwd=tmp_path)
        assert refused.returncode == 2
        assert reason in refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.json", "locomo.json"]


def test_unusable_mode_fails_before_storing(env: dict[str, str], tmp_path: Path) -> None:
    data = write_json(tmp_path / "locomo.json", LOCOMO)
    refused = bench("locomo", str(data), "--mode", "vector", "--here", settings=env, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (6, "")
    assert refused.stderr.startswith("Error: Embeddings are disabled")


async def test_temporary_server_leaves_the_configured_database_alone(
    env: dict[str, str], tmp_path: Path, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    (tmp_path / "tmp").mkdir()
    write_json(tmp_path / "locomo.json", LOCOMO)
    settings = {**env, "TMPDIR": str(tmp_path / "tmp")}
    report = json.loads(bench_output("locomo", str(tmp_path), "--json", settings=settings, cwd=tmp_path))
    assert report["overall"]["metrics"]["recall@5"] == pytest.approx(0.8333)
    assert await count_rows(sql) == [0, 0, 0]
    assert list((tmp_path / "tmp").iterdir()) == []


def interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr


def slow_benchmark(folder: Path) -> list[str]:
    """Return the command of a benchmark that takes long."""
    rows = ({"id": number, "text": f"Memory {number} of a long life. " * 20} for number in range(12_000))
    corpus = write_lines(folder / "c.jsonl", *rows)
    questions = write_lines(folder / "q.jsonl", {"question": "life", "expected": [1]})
    return [*BENCH, "own", str(corpus), str(questions)]


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_ready(pid_file: Path) -> bool:
    return pid_file.read_text().rstrip().endswith("ready")


def test_interrupted_benchmark_stops_its_server(env: dict[str, str], tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        slow_benchmark(tmp_path),
        env=bench_environment({**env, "TMPDIR": str(temporary)}),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: any(map(is_ready, temporary.glob("rem-bench-*/postgres/data/postmaster.pid"))), process)
    interrupt(process)
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "rem-bench-own.jsonl").exists()


async def test_interrupted_benchmark_erases_its_data(
    env: dict[str, str], tmp_path: Path, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    process = subprocess.Popen(
        [*slow_benchmark(tmp_path), "--here"],
        env=bench_environment(env),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not await sql.fetchval("SELECT EXISTS (SELECT FROM resources)"):
        assert process.poll() is None, process.communicate()
    interrupt(process)
    assert await count_rows(sql) == [0, 0, 0]


def write_week(path: Path, answer: str) -> Path:
    """Write a week of one day. Its only question is right first if `answer` is in the note."""
    week = {
        "name": "tiny",
        "user": "sam@example.com",
        "notes": [{"file": "bread.md", "text": "# Rye bread\n\nBake the rye bread for fifty minutes."}],
        "sessions": [{"id": "monday", "day": 1, "at": "08:00", "messages": ["The quince tree is in bloom."]}],
        "questions": [
            {"ask": "How long do I bake rye bread?", "group": "notes", "source": "bread.md", "answer": [answer]}
        ],
    }
    return write_json(path, week)


async def test_week_prints_figures_and_checks_limits(
    env: dict[str, str], tmp_path: Path, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    good = write_week(tmp_path / "good.yaml", "fifty minutes")
    report = json.loads(bench_output("week", str(good), "--no-tickets", "--here", "--json", settings=env))
    assert report["stages"]["other session"] == {"questions": 1, "first": 1.0, "among": 1.0}
    assert list(report["stages"]) == ["other session", "night 1", "repeated"]
    assert report["tickets"] is None
    assert await sql.fetchval("SELECT count(*) FROM messages WHERE content = 'How long do I bake rye bread?'") == 3
    bad = write_week(tmp_path / "bad.yaml", "an hour")
    failed = bench("week", str(bad), "--no-tickets", "--check", "--misses", "--here", settings=env)
    assert failed.returncode == 1
    assert "Broken limit: night 1: 0.0% of the answers come first: 85% is the limit." in failed.stdout
    assert (
        "night 1, notes: How long do I bake rye bread?\n  expected: an hour (not found; from bread.md)\n"
        in failed.stdout
    )
    assert "night 1: 1 questions, 0% first, 0% among" in failed.stderr
    assert "The data stays in the tenant bench-week-" in failed.stderr


def test_week_with_an_error_fails_before_starting_a_server(tmp_path: Path) -> None:
    nowhere = {"POSTGRES__CONNECTION_STRING": "postgresql://nobody@127.0.0.1:1/x", "TMPDIR": str(tmp_path)}
    path = write_json(tmp_path / "week.yaml", {"name": "x"})
    wrong = bench("week", str(path), settings=nowhere, cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith(f"Error: {path}: user: Field required;")
