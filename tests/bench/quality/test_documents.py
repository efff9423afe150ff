"""`python -m bench documents`: the reader, the baselines, the figures and the command."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from bench.quality.datasets.documents import read_dataset
from bench.quality.documents import PlainBM25, fuse_rankings

from rem.errors import InvalidInputError
from tests.bench.bench_command import bench_output

CORPUS = [
    {"_id": "kiwi", "title": "Kiwi", "text": "A bird of New Zealand that cannot fly."},
    {"_id": "emu", "title": "Emu", "text": "A tall bird of Australia that runs fast."},
    {"_id": "bread", "title": "", "text": "Rye dough rests overnight before it goes into the oven."},
    {"_id": 7, "title": "Emu", "text": "An emulator runs the programs of another computer."},
]
QUERIES = [
    {"_id": "q1", "text": "Which bird cannot fly?"},
    {"_id": "q2", "text": "How long does dough rest?"},
    {"_id": "q3", "text": "A question without a judgement"},
]
JUDGEMENTS = "query-id\tcorpus-id\tscore\nq1\tkiwi\t2\nq1\temu\t1\nq1\tbread\t0\nq2\tbread\t1\nq2\tmissing\t1\n"


def _write(folder: Path, judgements: str = JUDGEMENTS) -> Path:
    (folder / "qrels").mkdir()
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, CORPUS)), encoding="utf-8")
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, QUERIES)), encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text(judgements, encoding="utf-8")
    return folder


def test_documents_are_read_with_grades_and_distinct_titles(tmp_path: Path) -> None:
    documents = read_dataset(_write(tmp_path))
    (case,) = documents.dataset.cases
    assert [text.title for text in case.texts] == ["Kiwi", "Emu emu", "bread", "Emu 7"]
    assert [question.id for question in case.questions] == ["q1", "q2"]
    assert documents.grades == {"q1": {"kiwi": 2, "emu": 1}, "q2": {"bread": 1}}
    assert documents.dataset.dropped.gold_ids == 1
    assert [question.id for question in read_dataset(tmp_path, 1).dataset.cases[0].questions] == ["q1"]


def test_judgements_of_trec_are_read(tmp_path: Path) -> None:
    assert read_dataset(_write(tmp_path, "q1 0 kiwi 1\nq2 0 bread -1\n")).grades == {"q1": {"kiwi": 1}}


@pytest.mark.parametrize(
    ("judgements", "expected"),
    [
        ("q1\tkiwi\t1\nq1\tkiwi\tgood\n", "test.tsv:2: write the ids"),
        ("q1\tkiwi\t0\n", "has no question with a relevant document"),
    ],
)
def test_invalid_judgements_are_refused(tmp_path: Path, judgements: str, expected: str) -> None:
    with pytest.raises(InvalidInputError, match=expected):
        read_dataset(_write(tmp_path, judgements))


def test_incomplete_folder_is_refused(tmp_path: Path) -> None:
    _write(tmp_path)
    with pytest.raises(InvalidInputError, match="is a file"):
        read_dataset(tmp_path / "corpus.jsonl")
    (tmp_path / "queries.jsonl").unlink()
    with pytest.raises(InvalidInputError, match=r"has no file queries\.jsonl"):
        read_dataset(tmp_path)


def test_bm25_prefers_rare_words_and_short_documents() -> None:
    documents = {
        "short": Counter(bird=1, fly=1),
        "long": Counter(bird=1, fly=1, sea=8),
        "common": Counter(bird=1),
        "other": Counter(sea=1),
    }
    assert PlainBM25(documents).rank(Counter(bird=1, fly=1), 10) == ["short", "long", "common"]
    assert PlainBM25(documents).rank(Counter(tree=1), 10) == []


def test_fusion_adds_reciprocal_ranks() -> None:
    assert fuse_rankings(["a", "b", "c"], ["c", "b"]) == ["c", "b", "a"]


def test_command_measures_modes_and_baselines(dsn: str, tmp_path: Path) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    report = json.loads(bench_output("documents", str(_write(tmp_path)), "--here", "--json", settings=settings))
    assert (report["documents"], report["questions"], report["dropped_judgements"]) == (4, 2, 1)
    assert list(report["rankings"]) == ["hybrid", "text", "vector", "bm25", "fusion"]
    assert report["rankings"]["hybrid"]["ndcg"] == 1.0
    assert report["rankings"]["bm25"]["recall"] == 1.0
    shown = bench_output("documents", str(tmp_path), "--limit", "1", "--here", settings=settings)
    assert "rank fusion of BM25 and vectors" in shown
