"""Written conversations: every file is sound, and becomes a data set that the benchmarks read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.quality.datasets import locomo
from bench.quality.week.data import read_week
from training.dialogues import read_dialogue, to_locomo, to_memory
from training.overlap import text_hash, texts_of_week
from training.week_memories import to_memory as week_to_memory

from bench.quality import week

TRAINING = Path(__file__).parents[2] / "training"
DIALOGUES = sorted((TRAINING / "dialogues").glob("*.txt"))
CHATS = sorted((TRAINING / "assistant_chats").glob("*.txt"))
SOUND = """# 2023-03-04 19:20
1.1 Ines: The kayak fits on the roof! [photo: a red kayak on a car]
1.2 Tobias: Where will you take it?
? single | 1.1 | What colour is Ines's boat?
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "sample.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_written_conversation_is_sound() -> None:
    dialogues = [read_dialogue(path) for path in (*DIALOGUES, *CHATS)]
    assert len(dialogues) > 50
    assert all(len(dialogue.questions) > 20 and len(dialogue.sessions) > 3 for dialogue in dialogues)


def test_conversation_becomes_a_file_of_locomo(tmp_path: Path) -> None:
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([to_locomo(read_dialogue(write(tmp_path, SOUND)))]), encoding="utf-8")
    (case,) = locomo.read_dataset(path).cases
    assert [message.content for message in case.sessions[0].messages] == [
        "Ines: The kayak fits on the roof! [shares photo: a red kayak on a car]",
        "Tobias: Where will you take it?",
    ]
    assert [(question.kind, question.gold) for question in case.questions] == [("single-hop", ("D1:1",))]


def test_chat_with_an_assistant_keeps_roles_and_answers(tmp_path: Path) -> None:
    text = SOUND.replace("Ines:", "User:").replace("Tobias:", "Assistant:")
    memory = to_memory(read_dialogue(write(tmp_path, text)))
    assert [message["role"] for message in memory["sessions"][0]] == ["user", "assistant"]
    assert memory["questions"][0]["gold"] == [memory["sessions"][0][0]["id"]]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("1.2 Tobias", "1.3 Tobias", r"sample\.txt:3: the next number is 1\.2"),
        ("| 1.1 |", "| 4.1 |", r"sample\.txt:4: .* the messages must exist"),
        ("? single", "? guess", r"sample\.txt:4: the kind must be one of multi"),
        ("# 2023", "2023", r"sample\.txt:1: is no session, message or question"),
        ("1.2 Tobias", "1.2 Ines", "needs two speakers"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_dialogue(write(tmp_path, SOUND.replace(old, new)))


def test_week_becomes_a_memory_whose_answers_are_not_outdated() -> None:
    source = read_week(TRAINING / "weeks" / "paramedic.yaml")
    memory = week_to_memory(source)
    texts = {item["id"]: item["text"] for items in (*memory["sessions"], memory["notes"]) for item in items}
    (asked,) = [question for question in memory["questions"] if question["question"] == "mams metformin dose"]
    assert [texts[key] for key in asked["gold"]] == [
        "mam saw dr petrosyan, metformin going to 850 three times a day insted"
    ]
    assert len(memory["questions"]) > 0.9 * len(source.questions)


def test_no_text_of_a_measured_week_is_in_the_conversations() -> None:
    paths = [*Path(week.__path__[0]).glob("*.yaml"), *(TRAINING / "weeks" / "held_out").glob("*.yaml")]
    measured = {text_hash(text) for path in paths for text in texts_of_week(path)} - {None}
    dialogues = [read_dialogue(path) for path in (*DIALOGUES, *CHATS)]
    said = [message.text for dialogue in dialogues for session in dialogue.sessions for message in session]
    asked = [question.text for dialogue in dialogues for question in dialogue.questions]
    assert not measured & {text_hash(text) for text in (*said, *asked)}
