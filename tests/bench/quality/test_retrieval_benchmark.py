"""RetrievalBenchmark and its report, with scripted search results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest
from bench.quality.dataset import Case, Dataset, DatasetText, Question
from bench.quality.report import make_report
from bench.quality.retrieval_benchmark import QuestionOutcome, RetrievalBenchmark, Timing

from rem.app import Rem
from rem.errors import EmbeddingUnavailableError
from rem.models.results import Hit, Note, Result, Step
from rem.query.tree import Search

_QUESTIONS = tuple(Question(f"q{number}", f"text {number}", "kind", (f"{number}",)) for number in range(5))
_DATASET = Dataset(
    "own", (Case("me", _QUESTIONS, (), (DatasetText("0", "x", None),)),), "resources", "id", ("recall@1",)
)


@dataclass(frozen=True, slots=True)
class _FakeMemory:
    """A replacement of the memory of a user that finds the ids that the question names."""

    user: str
    tenant: str

    async def query(self, search: Search) -> Result:
        if search.text == "text 3":
            raise EmbeddingUnavailableError("The service is down.")
        number = search.text[-1]
        hits = [Hit("resources", number, {"metadata": {"id": number}}, 0.5)] * 2
        notes = (Note("words_only", f"of {self.user} in {self.tenant}"),)
        return Result("SEARCH", hits, notes=notes, steps=(Step("embed", 3.0), Step("database", 1.0)))


class _FakeRem:
    """A replacement of Rem."""

    def for_user(self, user: str, *, tenant: str) -> _FakeMemory:
        return _FakeMemory(user, tenant)


def _run(questions: tuple[Question, ...], concurrency: int = 1) -> RetrievalBenchmark:
    dataset = Dataset("own", (Case("me", questions),), "resources", "id", ("recall@1",))
    return RetrievalBenchmark(cast(Rem, _FakeRem()), dataset, tenant="bench", concurrency=concurrency)


@pytest.mark.parametrize("concurrency", [1, 2, 9])
async def test_questions_are_asked_once_and_outcomes_keep_the_order(concurrency: int) -> None:
    progress: list[tuple[int, int | None]] = []
    outcomes = await _run(_QUESTIONS[:3], concurrency).ask(lambda done, total: progress.append((done, total)))
    assert [outcome.found for outcome in outcomes] == [("0",), ("1",), ("2",)]
    assert [outcome.question.id for outcome in outcomes] == ["q0", "q1", "q2"]
    assert progress == [(1, 3), (2, 3), (3, 3)]
    assert outcomes[0].embedding_milliseconds == 3.0
    assert outcomes[0].scores == (0.5,)
    assert outcomes[0].notes == ("of me in bench",)


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_failing_question_ends_the_benchmark_with_its_error(concurrency: int) -> None:
    with pytest.raises(EmbeddingUnavailableError, match="The service is down"):
        await _run(_QUESTIONS, concurrency).ask(lambda _done, _total: None)


def test_report_equals_hand_computed_figures() -> None:
    outcomes = [
        QuestionOutcome(
            question, "me", ("0", "1"), (0.9, 0.8), 10.0 * (number + 1), 4.0 * number, ("by words",) * (number % 2)
        )
        for number, question in enumerate(_QUESTIONS)
    ]
    report = make_report(_DATASET, outcomes, Timing(store=1.0, index=3.0, ask=2.0), {"embedder": "none"})
    assert report.overall.metrics == {"recall@1": 0.2}
    assert (report.latency_ms["whole"].p50, report.latency_ms["whole"].p95) == (30.0, 50.0)
    # 10, 16, 22, 28, 34
    assert (report.latency_ms["without_embedding"].p50, report.latency_ms["without_embedding"].p95) == (22.0, 34.0)
    assert (report.throughput.rows_per_second, report.throughput.questions_per_second) == (0.2, 2.5)
    assert report.notes == {"by words": 2}
    assert report.configuration["embedder"] == "none"


def test_report_without_questions_has_no_figures() -> None:
    report = make_report(_DATASET, [], Timing(), {})
    assert report.overall.metrics == {"recall@1": None}
    assert report.latency_ms["whole"].p50 is None
    assert report.throughput.rows_per_second is None
