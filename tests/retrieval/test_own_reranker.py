"""REM's own reranker: its file is that of the manifest, it prefers answers, and answers do without it if it fails."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rem.app import Rem
from rem.embeddings.bundled.files import FOLDER, MANIFEST, RERANKER, read_manifest
from rem.errors import RerankerError
from rem.memory.message import NewMessage
from rem.models import Role
from rem.query.result import QueryResult
from rem.retrieval.cross_encoder import CrossEncoder
from rem.retrieval.cross_encoder_loader import OWN_MODEL, load_own_model, make_own_model
from rem.retrieval.reranker import (
    Reranker,
    make_answer_reranker,
    make_search_reranker,
    open_replacement_model,
    open_reranker,
)
from rem.settings import RerankerSettings, Settings
from tests.retrieval.tiny_cross_encoder import write_model

_QUESTION = "Where does my sister live now?"
_ANSWER = "Jo moved to Tromsø in March, my sister loves the snow there"
_OTHERS = ["My sister works as a vet", "I live above the bakery", "The dentist is on Tuesday", "lol ok"]


@pytest.fixture
async def own() -> AsyncIterator[Reranker]:
    reranker = open_reranker(RerankerSettings(threads=2))
    assert reranker is not None
    yield reranker
    await reranker.close()


def test_file_is_that_of_the_manifest() -> None:
    entry = read_manifest()["files"][RERANKER]
    content = (FOLDER / RERANKER).read_bytes()
    assert (hashlib.sha256(content).hexdigest(), len(content)) == (entry["sha256"], entry["bytes"])
    assert read_manifest()["reranker"] == OWN_MODEL
    assert "Apache-2.0" in entry["licence"]


@pytest.mark.parametrize(
    ("question", "answer", "others"),
    [
        (_QUESTION, _ANSWER, _OTHERS),
        (
            "How much is the rent?",
            "We pay 940 for the flat, bills extra",
            ["The flat is on the second floor", "Rent a van"],
        ),
        (
            "what can't granny eat",
            "granny came out in a rash from the peanut sauce, so never again",
            ["granny is coming on sunday", "we ate at the new thai place"],
        ),
    ],
)
async def test_answer_scores_above_other_texts(own: Reranker, question: str, answer: str, others: list[str]) -> None:
    first, *rest = await own.scores(question, [answer, *others])
    assert first > max(rest)


async def test_score_depends_on_no_other_text(own: Reranker) -> None:
    texts = [_ANSWER, *_OTHERS, "word " * 400, "", "😀 東京"]
    together = await own.scores(_QUESTION, texts)
    alone = [(await own.scores(_QUESTION, [text]))[0] for text in texts]
    assert together == pytest.approx(alone, abs=1e-3)


async def test_pair_is_read_as_in_training() -> None:
    """Check the tokens: at most 64 of the question, with its marks, and 256 of both."""
    seen: list[Mapping[str, Any]] = []

    class Recorder:
        def run(self, _outputs: Sequence[str], feed: Mapping[str, Any], /) -> list[Any]:
            seen.append(feed)
            return [np.zeros(len(feed["input_ids"]), dtype=np.float32)]

    reranker = CrossEncoder("recorder", lambda: make_own_model(Recorder()), threads=1)
    words = random.Random(1).choices(["river", "bread", "garden"], k=500)
    await reranker.scores(" ".join(words), [" ".join(words)])
    await reranker.close()
    (feed,) = seen
    assert feed["input_ids"].shape == (1, 256)
    assert int((feed["token_type_ids"] == 0).sum()) == 64
    assert feed["attention_mask"].all()


def test_settings_decide_what_is_reranked() -> None:
    def rerank(**values: object) -> tuple[bool, bool]:
        settings = RerankerSettings.model_validate(values)
        model = open_reranker(settings)
        answers = make_answer_reranker(model, settings, open_replacement_model(settings))
        assert answers is None or answers.replacements is not None
        return make_search_reranker(model, settings) is not None, answers is not None

    assert rerank() == (False, True)
    assert rerank(enabled=True) == (True, True)
    assert rerank(enabled=False, model_path="/nowhere") == (False, False)
    assert rerank(model_path="/nowhere") == (True, True)
    assert rerank(answer_weight=0) == (False, False)


async def _tell(rem: Rem, *texts: str) -> None:
    memory = rem.memory("alice")
    session = await memory.create_session()
    await memory.append(session.id, [NewMessage(role=Role.USER, content=text) for text in texts])


async def test_answers_are_reranked_and_searches_are_not(settings: Settings) -> None:
    async with Rem.open(settings) as rem:
        await _tell(rem, *_OTHERS[:3], _ANSWER)
        answer = await rem.ask(_QUESTION, user="alice")
        assert answer.results[0]["record"]["content"] == _ANSWER
        assert "rerank" in [step.name for step in answer.steps]
        searched = await rem.query(f'SEARCH "{_QUESTION}"', user="alice")
        assert "rerank" not in [step.name for step in searched.steps]
        arranged = await rem.arrange_answer(_QUESTION, searched, user="alice")
        assert "rerank" in [step.name for step in arranged.steps]


async def test_weight_of_answers_lets_the_model_decide(settings: Settings, tmp_path: Path) -> None:
    """Check with a model that counts common words, and prefers the row of the lower score."""
    path = write_model(tmp_path / "tiny")
    texts = ["lantern", "the lantern is where the garden is"]
    rows = [
        {"table": "resources", "key": text, "score": 2.0 - place, "passage": {"text": text}, "record": {}}
        for place, text in enumerate(texts)
    ]
    for weight, first in ((0.01, texts[0]), (5.0, texts[1])):
        reranker = RerankerSettings(model_path=path, answer_weight=weight)
        async with Rem.open(settings.model_copy(update={"reranker": reranker})) as rem:
            arranged = await rem.arrange_answer("where is the garden", QueryResult("SEARCH", rows), user="alice")
            assert arranged.results[0]["key"] == first


def test_damaged_file_is_an_error_with_advice(tmp_path: Path) -> None:
    shutil.copy(FOLDER / MANIFEST, tmp_path)
    for content in (None, b"damaged"):
        if content is not None:
            (tmp_path / RERANKER).write_bytes(content)
        with pytest.raises(RerankerError, match="install REM again"):
            load_own_model(tmp_path)


async def test_answer_without_a_working_model_is_that_without_a_reranker(settings: Settings, tmp_path: Path) -> None:
    answers: list[QueryResult] = []
    for reranker in (RerankerSettings(enabled=False), RerankerSettings(model_path=tmp_path / "nowhere")):
        async with Rem.open(settings.model_copy(update={"reranker": reranker})) as rem:
            if not answers:
                await _tell(rem, *_OTHERS, _ANSWER)
            answers.append(await rem.ask(_QUESTION, user="alice"))
    off, broken = answers
    assert [row["key"] for row in broken.results] == [row["key"] for row in off.results]
    assert not [note for note in off.notes if "Not reranked" in note]
    assert [note for note in broken.notes if "Not reranked" in note]
