"""`python -m bench answers` with a scripted reader and judge: verdicts, F1, tokens, resuming, and failing models."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from bench.quality.answers.run import choose_questions
from bench.quality.datasets.longmemeval import read_dataset

from tests.bench.bench_command import bench
from tests.bench.quality.sample_datasets import LOCOMO, longmemeval_entry, write_json
from tests.scripted_model import Refuse, ScriptedModel, Step, last_text, scripted_model

ENTRIES = [
    longmemeval_entry("q1", "What colour is my sailboat?", ["s-boat"], answer="green"),
    longmemeval_entry("q2", "How long does the dough rest?", ["s-bread"], answer="overnight"),
    longmemeval_entry("q3_abs", "What is the name of my parrot?", ["s-boat"], answer="No parrot was mentioned."),
]


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as model:
        model.script = _answer
        yield model


@pytest.fixture
def settings(model: ScriptedModel) -> dict[str, str]:
    return {
        "LLM__BASE_URL": model.url,
        "LLM__DEFAULT_MODEL": "openai:scripted",
        "LLM__MAX_RETRIES": "0",
        "EMBEDDING__PROVIDER": "none",
    }


def _is_judge(body: dict[str, Any]) -> bool:
    return "Is the response correct?" in last_text(body)


def _answer(body: dict[str, Any]) -> Sequence[Step]:
    text = last_text(body)
    if _is_judge(body):
        response = text.partition("Response: ")[2].splitlines()[0]
        if "cannot be answered" in text:
            return ["yes" if "do not know" in response else "no"]
        return ["yes" if text.partition("nswer: ")[2].splitlines()[0].lower() in response.lower() else "No."]
    if "parrot" in text.partition("Question:")[2]:
        return ["I do not know."]
    if "dough" in text.partition("Question:")[2]:
        return ["One hour."]
    return ["It is green." if "I painted my sailboat green." in text else "nothing"]


def _run(path: Path, cwd: Path, *options: str, settings: dict[str, str], code: int = 0) -> dict[str, Any]:
    name = "locomo" if "locomo" in path.name else "longmemeval"
    done = bench("answers", name, str(path), "--json", *options, settings=settings, cwd=cwd)
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout)) if done.stdout else {"error": done.stderr}


def test_answers_are_judged_by_kind_and_a_run_is_resumed(
    settings: dict[str, str], model: ScriptedModel, tmp_path: Path
) -> None:
    path = write_json(tmp_path / "longmemeval_s.json", ENTRIES)
    healthy = model.script
    model.script = lambda body: [Refuse(500)] if "parrot" in last_text(body) else healthy(body)
    first = _run(path, tmp_path, "--concurrency", "2", settings=settings, code=6)
    assert first["missing"] == 1
    model.script = healthy
    model.requests.clear()
    lines = (tmp_path / "rem-answers-longmemeval.jsonl").read_text()
    # A run that was killed while it wrote a line.
    (tmp_path / "rem-answers-longmemeval.jsonl").write_text(lines + '{"id": "cut')
    report = _run(path, tmp_path, settings=settings)
    assert len(model.requests) == 2
    assert all("parrot" in last_text(body) for body in model.requests)
    assert report["overall"] == {"questions": 3, "judged": 3, "accuracy": 0.6667, "f1": None}
    assert report["answerable"]["accuracy"] == 0.5
    assert report["reader"]["input_tokens"] == 3
    assert report["reader"]["cost"] is None
    assert report["header"]["reader"] == report["header"]["judge"] == "openai:scripted"
    model.requests.clear()
    assert _run(path, tmp_path, settings=settings) == report
    assert model.requests == []
    other = _run(path, tmp_path, "--top-k", "2", settings=settings, code=2)
    assert "another top_k: name another --output, or add --restart" in other["error"]


def test_reader_gets_dates_and_only_what_was_found(
    settings: dict[str, str], model: ScriptedModel, tmp_path: Path
) -> None:
    path = write_json(tmp_path / "longmemeval_s.json", ENTRIES[:1])
    table = bench("answers", "longmemeval", str(path), "--top-k", "1", settings=settings, cwd=tmp_path)
    assert table.returncode == 0, table.stderr
    assert "price not known" in table.stdout
    (prompt,) = [last_text(body) for body in model.requests if not _is_judge(body)]
    assert "[Monday, 01 May 2023, 10:00]" in prompt
    assert "Today is Thursday, 01 June 2023" in prompt
    assert "rye dough" not in prompt
    assert all(body["temperature"] == 0 and body["seed"] == 0 for body in model.requests)


def test_locomo_has_f1_and_adversarial_questions_apart(
    settings: dict[str, str], model: ScriptedModel, tmp_path: Path
) -> None:
    entry = dict(LOCOMO[0])
    entry["qa"] = [
        {"question": "What is the hedgehog called?", "answer": "Måns", "category": 4, "evidence": ["D1:1"]},
        {"question": "Which towns?", "answer": "Kraków, Gdańsk", "category": 1, "evidence": ["D2:1"]},
        {"question": "When did Zoë sail?", "adversarial_answer": "July", "category": 5, "evidence": ["D2:1"]},
    ]

    def script(body: dict[str, Any]) -> Sequence[Step]:
        question = last_text(body).partition("Question: ")[2].splitlines()[0]
        if _is_judge(body):
            return ["no" if "towns" in question else "yes"]
        replies = {"What": "The hedgehog Måns", "Which": "Kraków, Oslo", "When": "No information available"}
        return [replies[question.split()[0]]]

    model.script = script
    report = _run(write_json(tmp_path / "locomo10.json", [entry]), tmp_path, settings=settings)
    f1 = {kind: figures["f1"] for kind, figures in report["by_kind"].items()}
    assert f1 == {"single-hop": 0.6667, "multi-hop": 0.5, "adversarial": 1.0}
    assert report["overall"]["accuracy"] == 0.6667
    assert report["answerable"]["accuracy"] == 0.5


def test_limit_is_a_choice_by_seed(settings: dict[str, str], tmp_path: Path) -> None:
    entries = [longmemeval_entry(f"q{number}", "Colour?", ["s-boat"], answer="green") for number in range(20)]
    dataset = read_dataset(write_json(tmp_path / "longmemeval_s.json", entries))
    chosen = [choose_questions(dataset, 5, seed) for seed in (1, 1, 2)]
    ids = [[case.questions[0].id for case in item.cases] for item in chosen]
    assert ids[0] == ids[1] != ids[2]
    assert len(ids[0]) == 5


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [({"LLM__DEFAULT_MODEL": ""}, 6, "This needs a language model: add --reader"), ({}, 6, "scripted")],
    ids=["no model", "failing model"],
)
def test_unusable_model_is_explained(
    settings: dict[str, str], model: ScriptedModel, tmp_path: Path, changes: dict[str, str], code: int, message: str
) -> None:
    model.script = lambda _body: [Refuse(500)]
    path = write_json(tmp_path / "longmemeval_s.json", ENTRIES)
    done = bench("answers", "longmemeval", str(path), settings={**settings, **changes}, cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
