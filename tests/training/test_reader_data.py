"""Examples for the reader: answers are where they say, and held-out messages are not trained on."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path

from training.measure_reader import auroc
from training.reader_data import Maker, WordSearch
from training.reader_messages import make_messages, read_content, read_held_out, type_badly

from rem.search.reader import MessageType, RowText

TRAINING = Path(__file__).parents[2] / "training"
WEEK = TRAINING / "weeks" / "cork.yaml"


def _row(text: str, **values: object) -> dict[str, object]:
    return {
        "text": text,
        "title": None,
        "before": None,
        "is_note": False,
        "time": "2026-01-01",
        "place": 0,
        "score": 0.5,
        "answers": False,
        "is_source": True,
        "is_outdated": False,
    } | values


def test_span_is_the_answer_in_the_row_as_it_is_read() -> None:
    text, label, start, end, _ = Maker().row(
        RowText("It’s in the blue shed", "Ines", "Where is it?"), ["it's in the Blue"]
    )
    assert label == 1
    assert text[start:end] == "It’s in the blue"
    assert Maker().row(RowText("in the shed"), None)[1:4] == [0, None, None]


def test_candidates_become_rows_and_pairs(tmp_path: Path) -> None:
    item = {
        "week": "w",
        "ask": "When does the ferry leave?",
        "answer": ["at eight"],
        "rows": [
            _row("The ferry leaves at eight now", answers=True, time="2026-01-03"),
            _row("The ferry leaves at seven", is_outdated=True, time="2026-01-02"),
            _row("The ferry is blue", time="2026-01-01"),
        ],
    }
    path = tmp_path / "candidates.jsonl"
    path.write_text(json.dumps(item), encoding="utf-8")
    examples = list(Maker().from_weeks([path]))
    (rows,) = [example["rows"] for example in examples if "rows" in example]
    assert [row[1] for row in rows] == [1, 0]
    assert rows[0][0][rows[0][2] : rows[0][3]] == "at eight"
    pairs = [(e["older"], e["newer"]) for e in examples if e.get("replaces")]
    assert pairs == [("The ferry leaves at seven", "The ferry leaves at eight now")]
    assert any(e.get("replaces") is False for e in examples)


def test_name_is_exchanged_only_for_another_one() -> None:
    assert Maker().swap("Where does Ines live?", ["Ines", "Otto"]) == "Where does Otto live?"
    assert Maker().swap("Where does Ines live?", ["Ines"]) is None
    assert Maker().swap("Where is it?", ["Ines", "Otto"]) is None


def test_search_by_words_prefers_rare_words() -> None:
    assert WordSearch(["the cat and the dog", "the dog", "a lamp"]).find("where is the cat", 2)[0] == 0


def test_each_type_has_many_messages_and_none_is_held_out() -> None:
    texts: dict[str | None, set[str]] = defaultdict(set)
    for message in make_messages([WEEK], random.Random(1)):
        texts[message["type"]].add(message["text"].lower().rstrip("?.! "))
    held_out, pairs = read_held_out()
    assert all(len(texts[str(kind)]) >= 150 for kind in MessageType if kind is not MessageType.SMALL_TALK)
    trained = set().union(*texts.values())
    assert [text for text, _ in held_out if text.lower().rstrip("?.! ") in trained] == []
    assert [second for _, second, _ in pairs if second.lower().rstrip("?.! ") in trained] == []
    assert {kind for _, kind in held_out} == {str(kind) for kind in MessageType}


def test_every_slot_of_a_frame_is_known() -> None:
    content = read_content()
    frames = [frame for frames in content["types"].values() for frame in frames] + content["follow_ups"]
    assert {slot for frame in frames for slot in _slots(frame)} == content["slots"].keys()


def _slots(frame: str) -> list[str]:
    return [part.split("}")[0] for part in frame.split("{")[1:]]


def test_typing_changes_a_text_but_keeps_its_length() -> None:
    text = "Where does Ines keep the blue suitcase?"
    typed = {type_badly(text, random.Random(seed)) for seed in range(50)}
    assert len(typed) > 5
    assert all(len(text) - 3 <= len(found) <= len(text) for found in typed)


def test_auroc_counts_pairs_in_the_right_order() -> None:
    assert auroc([0.9, 0.8], [0.1, 0.2]) == 1
    assert auroc([0.1], [0.9]) == 0
