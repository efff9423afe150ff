"""Read the official data sets and own files; errors name the file and the position."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bench.quality.dataset import DroppedCounts
from bench.quality.datasets import beam, locomo, longmemeval, own

from rem.errors import InvalidInputError
from rem.models import Role
from tests.bench.quality.sample_datasets import (
    LOCOMO,
    LONGMEMEVAL,
    longmemeval_entry,
    pack,
    write_beam,
    write_json,
    write_lines,
)


@pytest.mark.parametrize("name", ["longmemeval_s.json", "longmemeval_s.json.gz", "longmemeval_s", "anything.json"])
def test_longmemeval_is_read_from_a_file_or_folder(tmp_path: Path, name: str) -> None:
    file = write_json(tmp_path / name, LONGMEMEVAL)
    (tmp_path / "README.md").write_text("not data")
    for path in (file, tmp_path):
        dataset = longmemeval.read_dataset(path)
        assert [case.user for case in dataset.cases] == ["question-q1", "question-q2", "question-q3_abs"]
    assert dataset.dropped == DroppedCounts(gold_ids=0, blank_messages=3)
    first = dataset.cases[0]
    assert [session.id for session in first.sessions] == ["s-boat", "s-bread", "s-boat-2"]
    rest, oven = first.sessions[1].messages
    assert (rest.role, oven.role, oven.index) == (Role.USER, Role.ASSISTANT, 1)
    assert oven.at == datetime(2023, 5, 2, 11, 30, 1, tzinfo=UTC)
    assert first.questions[0].gold == ("s-boat", "s-boat-2")
    assert first.questions[0].asked_at == datetime(2023, 6, 1, 9, 0, tzinfo=UTC)


def test_unanswerable_question_has_no_gold_ids(tmp_path: Path) -> None:
    dataset = longmemeval.read_dataset(write_json(tmp_path / "l.json", LONGMEMEVAL))
    assert dataset.cases[2].questions[0].gold == ()


def test_repeated_session_is_stored_twice(tmp_path: Path) -> None:
    entry = longmemeval_entry("q1", "boat", ["s-boat", "s-gone"], haystack_session_ids=["s-boat", "s-boat", "s-x"])
    dataset = longmemeval.read_dataset(write_json(tmp_path / "l.json", [entry]))
    assert [session.id for session in dataset.cases[0].sessions] == ["s-boat", "s-boat", "s-x"]
    assert dataset.cases[0].questions[0].gold == ("s-boat",)
    assert dataset.dropped.gold_ids == 1


def test_locomo_messages_have_speaker_photo_and_time(tmp_path: Path) -> None:
    dataset = locomo.read_dataset(write_json(tmp_path / "locomo10.json", LOCOMO))
    first, second = dataset.cases[0].sessions
    assert (first.id, second.id) == ("session_1", "session_2")
    assert [message.content for message in first.messages + second.messages] == [
        "Zoë: I adopted a hedgehog called Måns.",
        "Ravi: What does it eat?",
        "Ravi: My telescope arrived from Kraków.",
        "Zoë: Lovely! [shares photo: a red lighthouse]",
    ]
    assert [message.role for message in second.messages] == [Role.ASSISTANT, Role.USER]
    assert [message.speaker for message in second.messages] == ["Ravi", "Zoë"]
    assert first.messages[1].at == datetime(2023, 5, 8, 13, 56, 1, tzinfo=UTC)
    assert first.messages[1].id == "D1:2"


def test_locomo_unknown_evidence_is_dropped(tmp_path: Path) -> None:
    dataset = locomo.read_dataset(write_json(tmp_path / "locomo10.json", LOCOMO))
    questions = dataset.cases[0].questions
    assert [(question.kind, question.gold) for question in questions] == [
        ("single-hop", ("D1:1",)),
        ("multi-hop", ("D2:1", "D1:2")),
        ("temporal", ("D2:2",)),
        ("adversarial", ()),
    ]
    assert dataset.dropped.gold_ids == 4


def test_beam_is_read_from_archive_or_folder_in_order(tmp_path: Path) -> None:
    folder = write_beam(tmp_path / "beam")
    (tmp_path / "packed").mkdir()
    archive = pack(folder, tmp_path / "packed" / "beam_100K.tar.gz")
    found = [beam.read_dataset(path) for path in (folder, archive, tmp_path / "packed")]
    assert found[0].cases == found[1].cases == found[2].cases
    assert [case.user for case in found[0].cases] == ["chat-100K/1", "chat-100K/2", "chat-100K/10"]
    assert [case.user for case in beam.read_dataset(folder / "100K", limit=1).cases] == ["chat-1"]


def test_beam_nested_evidence_and_undated_batches(tmp_path: Path) -> None:
    case = beam.read_dataset(write_beam(tmp_path)).cases[0]
    assert [(question.kind, question.gold) for question in case.questions] == [
        ("abstention", ()),
        ("information_extraction", ("0",)),
        ("knowledge_update", ("4", "3")),
        ("summarization", ()),
    ]
    assert [session.at for session in case.sessions] == [
        datetime(2024, 3, 15, tzinfo=UTC),
        datetime(2024, 3, 16, tzinfo=UTC),
    ]
    assert [message.id for message in case.sessions[0].messages] == ["0", "1", "2", "3"]


def test_limit_reads_only_the_first_cases(tmp_path: Path) -> None:
    assert len(longmemeval.read_dataset(write_json(tmp_path / "l.json", LONGMEMEVAL), limit=2).cases) == 2
    assert len(locomo.read_dataset(write_json(tmp_path / "c.json", LOCOMO), limit=5).cases) == 1


@pytest.mark.parametrize("module", [longmemeval, locomo])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[]", "is an empty list: there is nothing to ask"),
        (b"{}", "which is a list"),
        (b"[1]", "entry 1: is not a JSON object"),
        (b'[{"some": "other file"}]', "entry 1: .*: Field required"),
    ],
)
def test_file_of_another_format_is_refused(tmp_path: Path, module: Any, content: bytes, expected: str) -> None:
    (tmp_path / "data.json").write_bytes(content)
    with pytest.raises(InvalidInputError, match=f"data.json .*{expected}"):
        module.read_dataset(tmp_path)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"haystack_dates": ["2023/05/01 (Mon) 10:00"]}, "question q1: 3 sessions have 3 ids and 1 dates"),
        ({"question_date": "yesterday"}, "question q1: 'yesterday' is not a time"),
        ({"haystack_sessions": [[{"role": "dog", "content": "wow"}]]}, r"entry 1: haystack_sessions.0.0.role: "),
    ],
)
def test_invalid_longmemeval_is_refused_with_a_reason(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    file = write_json(tmp_path / "l.json", [longmemeval_entry("q1", "boat", [], **changes)])
    with pytest.raises(InvalidInputError, match=expected):
        longmemeval.read_dataset(file)


def test_duplicate_question_id_is_refused(tmp_path: Path) -> None:
    file = write_json(tmp_path / "l.json", [LONGMEMEVAL[0], LONGMEMEVAL[0]])
    with pytest.raises(InvalidInputError, match="question-q1 occurs 2 times in this data set"):
        longmemeval.read_dataset(file)


def test_invalid_locomo_is_refused_with_a_reason(tmp_path: Path) -> None:
    entry = {**LOCOMO[0], "conversation": {"speaker_a": "x"}}
    with pytest.raises(InvalidInputError, match="conv-1 has no session_1"):
        locomo.read_dataset(write_json(tmp_path / "locomo.json", [entry]))
    entry["conversation"] = {"session_1": [{"speaker": "x", "dia_id": "D1:1", "text": "y"}]}
    with pytest.raises(InvalidInputError, match="session_1_date_time: '' is not a time"):
        locomo.read_dataset(write_json(tmp_path / "locomo.json", [entry]))


def test_invalid_beam_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="has no chats of BEAM"):
        beam.read_dataset(tmp_path / "empty")
    (tmp_path / "cut.tar.gz").write_bytes(pack(write_beam(tmp_path / "x"), tmp_path / "x.tar.gz").read_bytes()[:200])
    with pytest.raises(InvalidInputError, match="neither a complete archive of BEAM nor a folder"):
        beam.read_dataset(tmp_path / "cut.tar.gz")
    with pytest.raises(InvalidInputError, match=r"probing_questions.json: .*question: Field required"):
        beam.read_dataset(write_beam(tmp_path / "y", questions={"abstention": [{}]}))


def test_folder_with_several_files_is_refused(tmp_path: Path) -> None:
    for name in ("longmemeval_s.json", "longmemeval_oracle.json"):
        write_json(tmp_path / name, LONGMEMEVAL)
    with pytest.raises(InvalidInputError, match=r"longmemeval_oracle.json, longmemeval_s.json\): name one of them"):
        longmemeval.read_dataset(tmp_path)


def test_missing_path_is_refused(tmp_path: Path) -> None:
    for read_dataset in (longmemeval.read_dataset, locomo.read_dataset, beam.read_dataset):
        with pytest.raises(InvalidInputError, match="There is no file or folder"):
            read_dataset(tmp_path / "nothing.json")
    with pytest.raises(InvalidInputError, match="There is no file or folder"):
        own.read_dataset(tmp_path / "nothing.jsonl", tmp_path / "nothing.jsonl")
    with pytest.raises(InvalidInputError, match=r"has no .json"):
        longmemeval.read_dataset(tmp_path)


def test_broken_gzip_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "l.json.gz").write_bytes(b"not packed")
    with pytest.raises(InvalidInputError, match="is not a complete gzip file"):
        longmemeval.read_dataset(tmp_path / "l.json.gz")


def test_nul_characters_are_replaced(tmp_path: Path) -> None:
    entry = longmemeval_entry("q1", "x", [], haystack_sessions=[[{"role": "user", "content": "a\0b"}], [], []])
    dataset = longmemeval.read_dataset(write_json(tmp_path / "l.json", [entry]))
    assert dataset.cases[0].sessions[0].messages[0].content == "a�b"


CORPUS = [
    {"id": 1, "text": "Der Käse reift im Keller.", "user": "ana@example.com"},
    {"id": "m1", "text": "Where is it?", "session": "s", "time": "2024-05-01T10:00:00+02:00"},
    {"id": "m2", "text": "In the cellar.", "session": "s", "role": "assistant"},
]


def test_own_corpus_has_one_case_per_user(tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", "\ufeff" + '{"id": 0, "text": "漢字"}', "", *CORPUS)
    questions = write_lines(
        tmp_path / "q.jsonl",
        {"question": "Käse?", "expected": [1, 1], "user": "ana@example.com", "kind": "german"},
        {"question": "cellar", "expected": ["m2"], "id": "q-2"},
        {"question": "unknown", "expected": []},
    )
    dataset = own.read_dataset(corpus, questions)
    mine, anas = dataset.cases
    assert (mine.user, anas.user, dataset.table) == ("me", "ana@example.com", None)
    assert [text.content for text in mine.texts] == ["漢字"]
    assert [(message.id, message.index, message.role) for message in mine.sessions[0].messages] == [
        ("m1", 0, Role.USER),
        ("m2", 1, Role.ASSISTANT),
    ]
    assert mine.sessions[0].messages[0].at == datetime(2024, 5, 1, 8, 0, tzinfo=UTC)
    assert [(q.id, q.kind, q.gold) for q in anas.questions] == [("line 1", "german", ("1",))]
    assert [(q.id, q.gold) for q in mine.questions] == [("q-2", ("m2",)), ("line 3", ())]
    assert [len(case.questions) for case in own.read_dataset(corpus, questions, limit=1).cases] == [0, 1]


def test_own_corpus_of_one_kind_is_searched_in_its_table(tmp_path: Path) -> None:
    questions = write_lines(tmp_path / "q.jsonl", {"question": "?", "expected": []})
    assert own.read_dataset(write_lines(tmp_path / "m.jsonl", *CORPUS[1:]), questions).table == "messages"
    texts = write_lines(tmp_path / "t.jsonl", {"id": "a", "text": "b"})
    assert own.read_dataset(texts, questions).table == "resources"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", r"c.jsonl:4 is not JSON"),
        ("[]", r"c.jsonl:4: is not a JSON object"),
        ({"text": "no id"}, r"c.jsonl:4: id: Field required"),
        ({"id": "x"}, r"c.jsonl:4: text: Field required"),
        ({"id": "x", "text": " "}, r"c.jsonl:4: text: is empty"),
        ({"id": "x", "text": "y", "sesion": "z"}, r"c.jsonl:4: sesion: Extra inputs are not permitted"),
        ({"id": "x", "text": "y", "session": "z", "role": "dog"}, r"c.jsonl:4: role: "),
        ({"id": "x", "text": "y", "time": "soon"}, r"c.jsonl:4: time: "),
        ({"id": "x", "text": "y", "time": "2999-01-01"}, r"c.jsonl:4: time: is in the future"),
        ({"id": "m1", "text": "y"}, r"c.jsonl:4: the id 'm1' is also on line 2"),
        ({"id": "---", "text": "y"}, r"c.jsonl:4: id: has no letter or digit"),
        ({"id": "x", "text": "a\0b"}, r"c.jsonl:4: text: contains a NUL character"),
        ({"id": "x", "text": "y", "user": "u" * 256}, r"c.jsonl:4: user: A user id has 1 to 255 characters"),
    ],
)
def test_invalid_corpus_line_error_has_the_line_number(tmp_path: Path, line: Any, expected: str) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", *CORPUS, line)
    with pytest.raises(InvalidInputError, match=expected):
        own.read_dataset(corpus, write_lines(tmp_path / "q.jsonl", {"question": "?", "expected": []}))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"question": "?", "expected": ["m9"]}, r"q.jsonl:2: the expected id 'm9' is not in the corpus"),
        ({"question": "?", "expected": ["m1"], "user": "ana@example.com"}, r"q.jsonl:2: the expected id 'm1'"),
        ({"question": "?", "expected": [], "user": "bob"}, r"q.jsonl:2: the corpus has no line of the user 'bob'"),
        ({"question": "?", "expected": [], "id": "q1"}, r"q.jsonl:2: another question has the id 'q1'"),
        ({"question": "?"}, r"q.jsonl:2: expected: Field required"),
        ({"question": "?", "expected": "m1"}, r"q.jsonl:2: expected: Input should be a valid list"),
    ],
)
def test_invalid_question_line_error_has_the_line_number(tmp_path: Path, line: Any, expected: str) -> None:
    questions = write_lines(tmp_path / "q.jsonl", {"question": "?", "expected": ["m1"], "id": "q1"}, line)
    with pytest.raises(InvalidInputError, match=expected):
        own.read_dataset(write_lines(tmp_path / "c.jsonl", *CORPUS), questions)


def test_empty_own_files_are_refused(tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", *CORPUS)
    with pytest.raises(InvalidInputError, match=r"q.jsonl is empty: write one JSON object on each line"):
        own.read_dataset(corpus, write_lines(tmp_path / "q.jsonl"))
    with pytest.raises(InvalidInputError, match=r"e.jsonl is empty"):
        own.read_dataset(write_lines(tmp_path / "e.jsonl", "", " "), corpus)
