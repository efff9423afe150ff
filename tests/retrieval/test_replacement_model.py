"""The model that finds replaced rows: its file, what it says about pairs of texts, and what happens without it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence

import pytest

from rem import Rem
from rem.embeddings.bundled.files import FOLDER, REPLACEMENT, read_manifest
from rem.errors import RerankerError
from rem.query.compared_rows import parse_question, prepare_rows
from rem.query.question_words import QuestionWords
from rem.query.superseded import (
    MAX_READ_PAIRS,
    MIN_REPLACEMENT_LOGIT,
    SEPARATOR,
    AnswerModels,
    mark_superseded,
)
from rem.retrieval.cross_encoder_loader import REPLACEMENT_MODEL
from rem.retrieval.reranker import Reranker, open_replacement_model
from rem.settings import RerankerSettings

_QUESTION = "Where do we keep the ladder?"
_OLDER, _NEWER = "We keep the ladder in the barn.", "We keep the ladder behind the greenhouse."


@pytest.fixture
async def model() -> AsyncIterator[Reranker]:
    opened = open_replacement_model(RerankerSettings(threads=2))
    assert opened is not None
    yield opened
    await opened.close()


class FailingModel:
    """A model that cannot be loaded."""

    name = "failing"

    async def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """Raise the error of a damaged file."""
        raise RerankerError("damaged")

    async def close(self) -> None:
        """Do nothing."""


class CountingModel(FailingModel):
    """A model that finds a replacement in every pair."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return a sure logit for each pair."""
        self.texts += texts
        return [9.0] * len(texts)


def test_file_is_that_of_the_manifest() -> None:
    entry = read_manifest()["files"][REPLACEMENT]
    content = (FOLDER / REPLACEMENT).read_bytes()
    assert (hashlib.sha256(content).hexdigest(), len(content)) == (entry["sha256"], entry["bytes"])
    assert read_manifest()["replacement"] == REPLACEMENT_MODEL
    assert "Apache-2.0" in entry["licence"]


@pytest.mark.parametrize(
    ("question", "older", "newer"),
    [
        (_QUESTION, _OLDER, _NEWER),
        ("How much does the gardener charge?", "The gardener takes 25 an hour.", "Gardener wants 30 an hour from May"),
        (
            "Who waters the plants?",
            "Irene waters the plants while we're away.",
            "Irene can't, so Pavel does the plants.",
        ),
    ],
)
async def test_newer_value_replaces_the_older_one(model: Reranker, question: str, older: str, newer: str) -> None:
    (logit,) = await model.scores(question, [f"{older}{SEPARATOR}{newer}"])
    assert logit > MIN_REPLACEMENT_LOGIT


@pytest.mark.parametrize(
    ("question", "older", "newer"),
    [
        (_QUESTION, _OLDER, "The barn needs a new roof."),
        ("Where did I have lunch with Priya?", "I had lunch with Priya at Noma.", "I had lunch with Jonas at Amass."),
        ("What is my favourite soup?", "My favourite soup is borscht.", "My favourite song is Hurt."),
    ],
)
async def test_text_about_something_else_replaces_nothing(
    model: Reranker, question: str, older: str, newer: str
) -> None:
    (logit,) = await model.scores(question, [f"{older}{SEPARATOR}{newer}"])
    assert logit < MIN_REPLACEMENT_LOGIT


def _make_rows(*texts: str) -> list[dict[str, object]]:
    """Return messages of consecutive days, the oldest first."""
    return [
        {
            "table": "messages",
            "key": f"m{day}",
            "score": 0.5,
            "similarity": 0.5,
            "happened_at": f"2026-11-{day:02}T08:00:00+00:00",
            "passage": {"text": text, "start": 0},
            "record": {"id": f"00000000-0000-0000-0000-{day:012}", "message_index": day, "session_id": f"s{day}"},
        }
        for day, text in enumerate(texts, start=1)
    ]


async def _order(rem: Rem, model: Reranker, *texts: str) -> list[object]:
    rows = _make_rows(*texts)
    words = QuestionWords.of(_QUESTION, {})
    models = AnswerModels(dict.fromkeys(range(len(rows)), 2.0), model)
    return [row["key"] for row in await mark_superseded(rem.store("alice"), _QUESTION, words, rows, models)]


async def test_replaced_row_comes_after_the_newer_one(rem: Rem, model: Reranker) -> None:
    assert await _order(rem, model, _OLDER, _NEWER) == ["m2", "m1"]


async def test_without_a_working_model_rules_decide(rem: Rem) -> None:
    assert await _order(rem, FailingModel(), _OLDER, _NEWER) == ["m1", "m2"]
    assert await _order(rem, FailingModel(), _OLDER, "We no longer keep the ladder in the barn, it's in the shed.") == [
        "m2",
        "m1",
    ]


async def test_number_of_read_pairs_is_limited(rem: Rem) -> None:
    counting = CountingModel()
    texts = [f"The ladder is in shed {number}, we keep it there." for number in range(20)]
    asked = parse_question(_QUESTION, QuestionWords.of(_QUESTION, {}))
    assert len(list(prepare_rows(asked, _make_rows(*texts)))) == len(texts)
    await _order(rem, counting, *texts)
    assert 0 < len(counting.texts) <= MAX_READ_PAIRS
