"""The reader as a reranker: it prefers answers, and answers do without it if it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rem.app import Rem
from rem.models import Role
from rem.models.results import Answer
from rem.search.reranker import (
    Reranker,
    make_search_reranker,
    open_reranker,
)
from rem.sessions.message import NewMessage
from rem.settings import RerankerSettings, Settings

_QUESTION = "Where does my sister live now?"
_ANSWER = "Jo moved to Tromsø in March, my sister loves the snow there"
_OTHERS = ["My sister works as a vet", "I live above the bakery", "The dentist is on Tuesday", "lol ok"]


@pytest.fixture
async def own() -> AsyncIterator[Reranker]:
    reranker = open_reranker(RerankerSettings(threads=2))
    assert reranker is not None
    yield reranker
    await reranker.close()


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


def test_settings_decide_whether_searches_are_reranked() -> None:
    def rerank(**values: object) -> bool:
        settings = RerankerSettings.model_validate(values)
        return make_search_reranker(open_reranker(settings), settings) is not None

    assert not rerank()
    assert rerank(enabled=True)
    assert not rerank(enabled=False, model_path="/nowhere")
    assert rerank(model_path="/nowhere")


async def _tell(rem: Rem, *texts: str) -> None:
    memory = rem.for_user("alice").sessions
    session = await memory.create_session()
    await memory.append(session.id, [NewMessage(role=Role.USER, content=text) for text in texts])


async def test_answers_are_read_and_searches_are_not_reranked(settings: Settings) -> None:
    async with Rem.open(settings) as rem:
        await _tell(rem, *_OTHERS[:3], _ANSWER)
        answer = await rem.for_user("alice").ask(_QUESTION)
        assert answer.hits[0].record["content"] == _ANSWER
        searched = await rem.for_user("alice").query(f'SEARCH "{_QUESTION}"')
        assert "rerank" not in [step.name for step in searched.steps]


async def test_answer_without_a_working_model_is_that_without_a_reranker(settings: Settings, tmp_path: Path) -> None:
    answers: list[Answer] = []
    for reranker in (RerankerSettings(enabled=False), RerankerSettings(model_path=tmp_path / "nowhere")):
        async with Rem.open(settings.model_copy(update={"reranker": reranker})) as rem:
            if not answers:
                await _tell(rem, *_OTHERS, _ANSWER)
            answers.append(await rem.for_user("alice").ask(_QUESTION))
    off, broken = answers
    assert [hit.key for hit in broken.hits] == [hit.key for hit in off.hits]
    assert "not_reranked" not in [note.code for note in off.notes]
    assert "not_reranked" in [note.code for note in broken.notes]
