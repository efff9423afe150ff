"""`rem eval`: run, interrupt, resume, and compare experiments from the terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.rem_command import REM, REPOSITORY, environment, output, rem
from tests.scripted_model import Call, Pause, Refuse, ScriptedModel, last_text, scripted_model

CASES = 500
IN_FLIGHT = 8


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as model:
        yield model


@pytest.fixture
def settings(dsn: str, model: ScriptedModel, tmp_path: Path) -> dict[str, str]:
    return {
        "POSTGRES__CONNECTION_STRING": dsn,
        "REM_HOME": str(tmp_path / "home"),
        "EMBEDDING__PROVIDER": "none",
        "LLM__BASE_URL": model.url,
        "LLM__DEFAULT_MODEL": "openai:scripted",
        "LLM__MAX_RETRIES": "0",
        "REM_USER": "alice",
    }


def write_golden(folder: Path, cases: list[dict[str, Any]], name: str = "capitals") -> Path:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(f"{json.dumps(case)}\n" for case in cases), encoding="utf-8")
    return path


ANSWERS = {"France": "Paris", "Japan": "Tokyo", "Peru": "Lima"}
CAPITALS = [{"id": name.lower(), "input": name, "reference": capital} for name, capital in ANSWERS.items()]


def answer(body: dict[str, Any]) -> list[Any]:
    if "You judge" not in str(body["messages"][0]):
        return [ANSWERS.get(last_text(body), "?")]
    scores = {"correctness_score": 1, "completeness_score": 0.5, "explanation": "Right."}
    return [Call(body["tools"][0]["function"]["name"], scores)]


def test_an_experiment_from_run_to_comparison(settings: dict[str, str], model: ScriptedModel, tmp_path: Path) -> None:
    model.script = answer
    golden = str(write_golden(tmp_path, CAPITALS))
    arguments = ("eval", "run", golden, "--agent", "rem", "-e", "exact", "-e", "answer-correctness")
    first = output(*arguments, "--output", str(tmp_path / "first"), settings=settings)
    assert "capitals#1: agent rem, 3 cases" in first
    assert "passed 3 of 3 (100.0%)" in first
    assert "answer-correctness.overall" in first
    assert max(len(line) for line in first.splitlines() if not line.startswith("Files: ")) <= 80
    assert {path.name for path in (tmp_path / "first").iterdir()} == {"outputs.jsonl", "scores.jsonl", "summary.json"}

    # The same again is the same, and no regression.
    second = json.loads(output(*arguments, "--baseline", "previous", "--json", settings=settings))
    assert second["comparison"]["regressions"] == []
    assert second["comparison"]["changed_versions"] == []
    assert Path(second["folder"]).parent == tmp_path / "home" / "experiments"

    # An agent that is broken makes it red.
    model.script = lambda body: ["Rome"] if "You judge" not in str(body["messages"][0]) else answer(body)
    worse = rem(*arguments, "--baseline", "capitals#1", settings=settings)
    assert worse.returncode == 7
    assert "capitals#3 is worse than capitals#1: pass rate 1.000 → 0.000" in worse.stderr
    assert "exact.pass" in worse.stdout
    strict = rem(*arguments, "--min-pass-rate", "0.9", settings=settings)
    assert strict.returncode == 8
    assert "0 of 3 judged cases passed, and 90% must" in strict.stderr
    model.script = lambda _body: [Refuse(500)]
    failed = rem(*arguments, settings=settings)
    assert failed.returncode == 8
    assert "3 cases and 0 judgements ended with an error" in failed.stderr

    assert rem("eval", "compare", "capitals#1", "capitals#3", settings=settings).returncode == 7
    assert rem("eval", "compare", "capitals#3", "capitals#1", settings=settings).returncode == 0
    shown = output("eval", "show", "capitals#3", settings=settings)
    assert "failed france: France: The output differs" in shown
    case = json.loads(output("eval", "show", "capitals#3", "peru", "--json", settings=settings))
    assert (case["output"], case["reference"]) == ("Rome", "Lima")
    listed = json.loads(output("eval", "list", "capitals", "--json", settings=settings))
    assert [row["run"] for row in listed][-1] == "capitals#1"
    assert "capitals#5" in output("eval", "list", settings=settings)

    # Outputs that are stored are judged again without the agent.
    model.requests.clear()
    judged = output("eval", "judge", "capitals#1", "-e", "latency", settings=settings)
    assert "latency.seconds" in judged
    assert model.requests == []
    output("eval", "delete", "capitals#1", "--yes", settings=settings)
    gone = rem("eval", "show", "capitals#1", settings=settings)
    assert gone.returncode == 3
    assert rem("eval", "list", "--user", "bob", settings=settings).stdout == ""


def test_a_failed_case_runs_again_on_request(settings: dict[str, str], model: ScriptedModel, tmp_path: Path) -> None:
    model.script = lambda body: [Refuse(500)] if last_text(body) == "Peru" else answer(body)
    golden = str(write_golden(tmp_path, CAPITALS))
    assert rem("eval", "run", golden, "--agent", "rem", "-e", "exact", settings=settings).returncode == 8
    model.script = answer
    model.requests.clear()
    resumed = output("eval", "resume", "capitals", "--retry-failed", settings=settings)
    assert "passed 3 of 3" in resumed
    assert [last_text(body) for body in model.requests] == ["Peru"]


@cases(
    ("arguments", "code", "words"),
    [
        ((), 2, "either --agent or --query"),
        (("--agent", "rem", "--query", "LOOKUP"), 2, "either --agent or --query"),
        (("--agent", "nobody"), 3, "There is no agent 'nobody'"),
        (("--query", "FIND {input}"), 2, "FIND"),
        (("--query", "LOOKUP", "-e", "nobody"), 3, "There is no evaluator 'nobody'"),
        (("--query", "LOOKUP", "-e", "rem"), 2, "rem is an agent and no evaluator"),
        (("--query", "LOOKUP", "-e", "exact", "-e", "exact"), 2, "more than once"),
        (("--query", "LOOKUP", "--baseline", "nothing"), 3, "There is no run 'nothing'"),
        (("--query", "LOOKUP", "--name", "../x"), 2, "The name of an experiment"),
        (
            ("--agent", "rem", "--model", "rem:local", "-e", "answer-correctness", "--judge-model", "rem:local"),
            6,
            "needs a",
        ),
    ],
)
def test_mistakes_are_found_before_a_case_runs(
    settings: dict[str, str], model: ScriptedModel, tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = rem("eval", "run", str(write_golden(tmp_path, CAPITALS)), *arguments, settings=settings)
    assert done.returncode == code
    assert words in done.stderr
    assert model.requests == []
    assert json.loads(output("eval", "list", "--json", settings=settings)) == []


def test_folder_that_cannot_be_written_is_found_before_a_case_runs(
    settings: dict[str, str], model: ScriptedModel, tmp_path: Path
) -> None:
    path = write_golden(tmp_path, CAPITALS)
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    options = ("--agent", "rem", "-e", "exact", "--name", "blocked", "--output", str(blocked / "results"))
    run = rem("eval", "run", str(path), *options, settings=settings)
    assert (run.returncode, model.requests) == (2, [])
    assert f"{blocked / 'results'} cannot be written" in run.stderr
    assert "Traceback" not in run.stderr


def start_run(settings: dict[str, str], *command: str) -> subprocess.Popen[str]:
    arguments = [str(REM), "eval", *command, "--concurrency", str(IN_FLIGHT)]
    return subprocess.Popen(
        arguments,
        env=environment(settings),
        cwd=REPOSITORY / "tests",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_requests(model: ScriptedModel, count: int) -> None:
    deadline = time.monotonic() + 300
    while len(model.requests) < count:
        assert time.monotonic() < deadline, f"only {len(model.requests)} requests"
        time.sleep(0.01)


def test_500_cases_survive_ctrl_c_and_kill(settings: dict[str, str], model: ScriptedModel, tmp_path: Path) -> None:
    model.script = lambda body: [Pause(0.01), last_text(body)]
    cases = [{"id": str(number), "input": f"case {number}", "reference": f"case {number}"} for number in range(CASES)]
    golden = write_golden(tmp_path, cases, "many")

    # Ctrl-C: the cases in flight are finished and stored.
    process = start_run(settings, "run", str(golden), "--agent", "rem", "-e", "exact")
    wait_for_requests(model, 100)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Continue with: " in error
    assert "eval resume 'many#1'" in error
    done = json.loads(output("eval", "show", "many", "--json", settings=settings))["outputs"]
    assert 100 <= done == len(model.requests) < CASES

    # kill -9: only what was in flight is lost, and asked for again.
    process = start_run(settings, "resume", "many")
    wait_for_requests(model, done + 150)
    process.kill()
    process.communicate()
    stored = json.loads(output("eval", "show", "many", "--json", settings=settings))["outputs"]
    asked = len(model.requests)
    assert done + 100 <= stored <= asked
    assert asked - stored <= IN_FLIGHT

    finished = json.loads(output("eval", "resume", "many", "--json", settings=settings))
    assert finished["complete"]
    assert (finished["outputs"], finished["passed"], finished["errors"]) == (CASES, CASES, 0)
    counts = Counter(last_text(body) for body in model.requests)
    assert set(counts) == {case["input"] for case in cases}
    # Whatever was stored ran once. A case ran twice only if it was in flight when the process was killed.
    assert counts.total() == CASES + asked - stored
    assert max(counts.values()) <= 2
    # A run that is complete asks for nothing.
    again = json.loads(output("eval", "resume", "many", "--json", settings=settings))
    assert again["passed"] == CASES
    assert len(model.requests) == counts.total()


def test_second_ctrl_c_stops_at_once(settings: dict[str, str], model: ScriptedModel, tmp_path: Path) -> None:
    model.script = lambda _body: [Pause(30), "late"]
    golden = write_golden(tmp_path, CAPITALS)
    process = start_run(settings, "run", str(golden), "--agent", "rem")
    wait_for_requests(model, 3)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    os.set_blocking(process.stderr.fileno(), True)
    assert "Finishing the cases in flight" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "`rem eval resume capitals#1` continues" in printed


def test_golden_sets_from_sessions_and_feedback(settings: dict[str, str], model: ScriptedModel, tmp_path: Path) -> None:
    model.script = answer
    for country in ("France", "Japan"):
        output("ask", country, "--session", "capitals", settings=settings)
    path = tmp_path / "golden.yaml"
    made = rem("eval", "golden", "from-session", "capitals", "-o", str(path), settings=settings)
    assert "Wrote 2 cases" in made.stderr
    assert output("eval", "golden", "check", str(path), settings=settings) == "golden: 2 cases\n"
    assert "passed 2 of 2" in output("eval", "run", str(path), "--agent", "rem", "-e", "exact", settings=settings)
    # The history of a case reaches the agent.
    assert "Paris" in str(model.requests[-1]["messages"]) or "Paris" in str(model.requests[-2]["messages"])
    nothing = rem("eval", "golden", "from-feedback", settings=settings)
    assert nothing.returncode == 3
    assert "No rated answer" in nothing.stderr
    other = rem("eval", "golden", "from-session", "capitals", "--user", "bob", settings=settings)
    assert other.returncode == 3
    assert "Paris" not in other.stdout
    assert "There is no session 'capitals'" in other.stderr


def test_runs_without_a_common_case_are_not_called_equal(
    settings: dict[str, str], model: ScriptedModel, tmp_path: Path
) -> None:
    model.script = answer
    golden = str(write_golden(tmp_path, CAPITALS))
    others = str(write_golden(tmp_path, [{"input": "Spain"}], "others"))
    output("eval", "run", golden, "--agent", "rem", "-e", "exact", settings=settings)
    run = ("eval", "run", others, "--agent", "rem", "-e", "latency", "--name", "capitals", "--baseline", "previous")
    compared = rem(*run, settings=settings)
    assert compared.returncode == 2
    assert "have no case in common" in compared.stderr
    assert rem("eval", "compare", "capitals#1", "capitals#2", settings=settings).returncode == 2
