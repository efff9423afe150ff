"""The training data: generated memories answer their questions, and measured texts are recognised."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
import yaml
from training.overlap import text_hash, texts_of_week
from training.synthetic import make_chat, make_notes
from training.synthetic_frames import FRAMES, SLOTS

from bench.quality import week


@pytest.mark.parametrize("make", [make_notes, make_chat])
def test_generated_questions_have_answers(make: object) -> None:
    memory = make(0, random.Random(1), held_out=False)  # type: ignore[operator]
    ids = {item["id"] for items in (*memory["sessions"], memory["notes"]) for item in items}
    assert len(memory["questions"]) > 20
    assert all(set(question["gold"]) <= ids for question in memory["questions"])
    texts = [item["text"] for items in (*memory["sessions"], memory["notes"]) for item in items]
    assert not [text for text in texts if re.search(r"[{}]", text)]


def test_generated_memories_are_the_same_in_every_run() -> None:
    assert make_notes(3, random.Random(5), held_out=False) == make_notes(3, random.Random(5), held_out=False)


def test_held_out_questions_are_about_other_facts() -> None:
    asked = {q["question"] for q in make_notes(0, random.Random(1), held_out=False)["questions"]}
    assert not asked & {q["question"] for q in make_notes(0, random.Random(1), held_out=True)["questions"]}


def test_no_text_of_the_measured_week_is_in_the_training_texts() -> None:
    measured = {text_hash(text) for text in texts_of_week(Path(week.__path__[0]) / "week.yaml")} - {None}
    trained = {text_hash(text) for frame in FRAMES for part in frame for text in part}
    assert len(measured) > 100
    assert not measured & trained


def test_no_statement_of_a_measured_week_is_in_the_trained_weeks() -> None:
    """Check all texts. Two people asked the same question about other things."""
    folder = Path(__file__).parents[2] / "training" / "weeks"
    paths = [*Path(week.__path__[0]).glob("*.yaml"), *(folder / "held_out").glob("*.yaml")]
    measured = [text for path in paths for text in texts_of_week(path)]
    trained = {text_hash(text) for path in folder.glob("*.yaml") for text in texts_of_week(path)} - {None}
    assert len(paths) == 5
    assert len(measured) > 1000
    assert len(trained) > 3000
    shared = {text for text in measured if text_hash(text) in trained}
    assert shared <= {"When does the boat come out of the water?", "What's the policy number for the van?"}


def test_hash_ignores_speaker_case_and_punctuation() -> None:
    said = text_hash("Maria: The boat leaves at nine, not at ten!")
    assert said == text_hash("the boat leaves at nine not at ten")
    assert said != text_hash("the boat leaves at nine not at eleven")
    assert text_hash("Thank you!") is None


def test_every_slot_has_several_values() -> None:
    assert all(len(values) > 3 for values in SLOTS.values())
    assert yaml.safe_load((Path(__file__).parents[2] / "training" / "everyday.yaml").read_text(encoding="utf-8"))
