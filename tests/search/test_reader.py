"""The reader: it finds the sentence that answers, tells kinds of messages, and says what replaces what."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from rem.app import Rem
from rem.errors import RerankerError
from rem.models.message import MessageKind
from rem.search.confidence import choose_best, estimate_confidence, find_features
from rem.search.models.files import FOLDER, MANIFEST, READER, read_manifest
from rem.search.reader import (
    LONG_ROW_CHARS,
    MAX_LONG_ROWS,
    MAX_QUESTION_TOKENS,
    MAX_TOKENS,
    MODEL,
    MessageType,
    Reader,
    RowText,
    find_reading_sentences,
    load_reader,
)

_NOTE = (
    "The surveyor came on Monday. He wants 340 euros for the report, half of it in advance.\n"
    "The cellar is dry. His office is in Aldgate, above the pharmacy."
)


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    opened = Reader(threads=2)
    yield opened
    await opened.close()


def test_file_is_that_of_the_manifest() -> None:
    assert read_manifest()["reader"] == MODEL
    assert load_reader() is load_reader()


@pytest.mark.parametrize(
    ("question", "piece"),
    [
        ("How much does the surveyor charge?", "340 euros"),
        ("where is the surveyor's office", "Aldgate"),
        ("When did the surveyor come?", "Monday"),
    ],
)
async def test_sentence_with_the_answer_is_found(reader: Reader, question: str, piece: str) -> None:
    (reading,) = await reader.read(question, [RowText(_NOTE, "House")])
    assert reading is not None
    sentence = _NOTE[slice(*reading.sentence)]
    assert piece in sentence
    assert sentence in [_NOTE[start:end] for start, end in find_reading_sentences(_NOTE)]
    start, end = reading.span
    assert reading.sentence[0] <= start <= end <= len(_NOTE)


async def test_row_with_the_answer_is_surer_than_others(reader: Reader) -> None:
    rows = [
        RowText("We had pea soup on Sunday"),
        RowText("Nora's cello teacher is Mr Achterberg, he lives on Canal Street"),
        RowText("The cello needs a new string"),
    ]
    readings = await reader.read("Who teaches Nora the cello?", rows)
    relevance = [reading.relevance for reading in readings if reading]
    answers = [reading.answers for reading in readings if reading]
    assert relevance.index(max(relevance)) == answers.index(max(answers)) == 1
    assert all(0 <= share <= 1 for share in answers)


async def test_offsets_are_those_of_the_text_of_the_row(reader: Reader) -> None:
    text = "😀 Olá! The ferry to Texel leaves at 06:30.\0 Bring the blue crate."
    for row in (RowText(text), RowText(text, "Trip"), RowText(text, "Anouk", "When does it leave?")):
        (reading,) = await reader.read("When does the ferry leave?", [row])
        assert reading is not None
        assert "06:30" in text[slice(*reading.sentence)]


async def test_reading_depends_on_no_other_row(reader: Reader) -> None:
    rows = [RowText(_NOTE), RowText("lol ok"), RowText("word " * 60), RowText(""), RowText("[SEP] 東京 [CLS]")]
    together = await reader.read("Where is his office?", rows)
    for row, reading in zip(rows, together, strict=True):
        (alone,) = await reader.read("Where is his office?", [row])
        assert reading is not None
        assert alone is not None
        assert reading.relevance == pytest.approx(alone.relevance, abs=1e-3)
        assert reading.sentence == alone.sentence
    assert await reader.read("Where?", []) == []


async def test_only_some_long_rows_are_read(reader: Reader) -> None:
    long, short = RowText("x" * (LONG_ROW_CHARS + 1)), RowText("x")
    readings = await reader.read("What?", [*[long] * (MAX_LONG_ROWS + 2), short])
    assert [reading is None for reading in readings] == [*[False] * MAX_LONG_ROWS, True, True, False]


def test_pair_is_read_as_in_training() -> None:
    pair = load_reader().encode("river " * 500, "bread " * 500)
    assert len(pair.ids) == MAX_TOKENS
    assert pair.first == MAX_QUESTION_TOKENS + 2
    assert (pair.ids[0], pair.ids[pair.first - 1], pair.ids[-1]) == (101, 102, 102)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two", ["One.", "Two"]),
        (
            "Diabetic since spring, gets eight units of Caninsulin each\nmorning. Owner: Dona Leite",
            ["Diabetic since spring, gets eight units of Caninsulin each\nmorning.", "Owner: Dona Leite"],
        ),
        ("- milk\n- eggs\nlamp oil", ["- milk", "- eggs", "lamp oil"]),
        ("\n \n", []),
    ],
)
def test_wrapped_line_is_one_sentence(text: str, sentences: list[str]) -> None:
    assert [text[start:end] for start, end in find_reading_sentences(text)] == sentences


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Which hotel did we stay at in Bruges?", MessageType.FACT),
        ("how many lodgers have paid", MessageType.COUNT),
        ("What did the roof repairs cost in total?", MessageType.SUM),
        ("which of the quotes is the cheapest", MessageType.MINIMUM),
        ("Which lodger pays the highest rent?", MessageType.MAXIMUM),
        ("is Wilma allergic to cats", MessageType.YES_NO),
        ("List all the lodgers.", MessageType.LIST),
        ("The lodger in the attic moved out on Sunday.", MessageType.STATEMENT),
        ("thanks a lot!", MessageType.SMALL_TALK),
        ("Remind me to ring the lodger tomorrow", MessageType.COMMAND),
    ],
)
async def test_type_of_a_message(reader: Reader, message: str, expected: MessageType) -> None:
    reading = await reader.classify(message)
    assert reading.type is expected
    assert sum(reading.types.values()) == pytest.approx(1)
    questions = {MessageKind.QUESTION: tuple(MessageType)[:7]}
    assert (reading.kind is MessageKind.QUESTION) == (expected in questions[MessageKind.QUESTION])


async def test_follow_up_continues_and_another_question_does_not(reader: Reader) -> None:
    previous = "When is Wilma's hearing test?"
    follow_up = await reader.classify("and where is it?", previous)
    other = await reader.classify("What is the licence plate of the camper van?", previous)
    assert follow_up.continues > 0.5 > other.continues


async def test_newer_value_replaces_the_older_one(reader: Reader) -> None:
    asked = "How much does the gardener charge?"
    older = "The gardener takes 25 an hour."
    changed, other = await reader.replaces(
        asked, [("The gardener takes 30 an hour now.", older), ("The gardener has a new van.", older)]
    )
    assert changed > 0.5 > other


async def test_confidence_is_higher_where_the_answer_is(reader: Reader) -> None:
    question, scores = "Who teaches Nora the cello?", [0.5, 0.45]
    right = [RowText("Nora's cello teacher is Mr Achterberg"), RowText("The cello needs a new string")]
    wrong = [RowText("Timo has guitar lessons with Mrs Falk"), RowText("The cello needs a new string")]
    sure, unsure = [
        estimate_confidence(question, rows, await reader.read(question, rows), scores) for rows in (right, wrong)
    ]
    assert 0 <= unsure < sure <= 1
    assert estimate_confidence(question, [], [], []) == 0


async def test_features_say_whether_the_asked_name_is_there(reader: Reader) -> None:
    rows = [RowText("Nora's cello teacher is Mr Achterberg")]
    for question, share in (("Where is Nora?", 1.0), ("Where is Timo?", 0.0), ("who is it?", 1.0)):
        readings = await reader.read(question, rows)
        features = find_features(question, rows, readings, [0.5])
        assert features is not None
        assert features["named"] == share
    assert choose_best([0.1, 0.9], [*readings, None]) == 0


async def test_search_score_and_reader_choose_together(reader: Reader) -> None:
    rows = [RowText("lamp oil"), RowText("The lamp is in the attic"), RowText("The lamp is in the barn")]
    readings = await reader.read("Where is the lamp?", rows)
    assert choose_best([0.3, 0.3, 0.1], readings) == 1
    assert choose_best([0.3, 0.1, 0.4], readings) == 2


async def test_closed_reader_is_an_error_for_its_caller() -> None:
    closed = Reader(threads=1)
    await closed.read("Where?", [RowText("here")])
    await closed.close()
    with pytest.raises(RerankerError):
        await closed.read("Where?", [RowText("here")])


async def test_calls_run_at_the_same_time(reader: Reader) -> None:
    rows = [RowText(f"The lamp is in room {number}") for number in range(20)]
    first, *others = await asyncio.gather(*(reader.read("Where is the lamp?", rows) for _ in range(4)))
    for other in others:
        assert np.allclose([r.relevance for r in first if r], [r.relevance for r in other if r], atol=1e-3)


@pytest.mark.parametrize("content", [None, b"damaged"])
def test_damaged_file_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    shutil.copy(FOLDER / MANIFEST, tmp_path)
    if content is not None:
        (tmp_path / READER).write_bytes(content)
    with pytest.raises(RerankerError):
        load_reader(tmp_path)


async def test_rem_has_the_reader(rem: Rem) -> None:
    (reading,) = await rem.reader.read("Where is the lamp?", [RowText("The lamp is in the attic")])
    assert reading is not None
    assert reading.sentence == (0, 24)
