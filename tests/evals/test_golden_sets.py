"""Golden sets come from files, sessions and feedback. An error names the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rem.app import Rem
from rem.context import Scope
from rem.errors import InvalidInputError, NotFoundError
from rem.evals.golden_sets import (
    GoldenCase,
    golden_from_feedback,
    golden_from_session,
    read_golden_set,
    write_golden_set,
)
from rem.models import Feedback, Role
from rem.sessions.message import NewMessage

ALICE, BOB = Scope(user_id="alice"), Scope(user_id="bob")


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("same.yaml", "- input: Wer ist Zoë?\n  reference: zoë\n  metadata: {level: easy}\n- id: two\n  input: b\n"),
        (
            "same.yml",
            "cases:\n- input: Wer ist Zoë?\n  reference: zoë\n  metadata: {level: easy}\n- {id: two, input: b}\n",
        ),
        (
            "same.jsonl",
            '{"input": "Wer ist Zoë?", "reference": "zoë", "metadata": {"level": "easy"}}\n\n'
            '{"id": "two", "input": "b"}\n',
        ),
        ("same.csv", "id,input,reference,level\n,Wer ist Zoë?,zoë,easy\ntwo,b,,\n"),
        ("same.csv", "\ufeffid,input,reference,level\r\n,Wer ist Zoë?,zoë,easy\r\ntwo,b,,\r\n"),
    ],
)
def test_all_formats_give_the_same_cases(tmp_path: Path, name: str, text: str) -> None:
    golden_set = read_golden_set(write(tmp_path, name, text))
    first, second = golden_set.cases
    assert golden_set.name == "same"
    assert (first.id, first.input, first.reference, first.metadata) == (
        "case-1",
        "Wer ist Zoë?",
        "zoë",
        {"level": "easy"},
    )
    assert (second.id, second.input, second.reference) == ("two", "b", None)
    assert golden_set.data_hash == "1ef0d7a35039bccc"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "- input: a\n- reference: b\n", "line 2: input: Field required"),
        ("a.yaml", "- input: a\n\n- input: b\n  expected: c\n", "line 3: expected: Extra inputs"),
        ("a.yaml", "- id: x\n  input: a\n- id: x\n  input: b\n", "line 3: the id 'x' is also on line 1"),
        ("a.yaml", "- input: [\n", "line 2: not valid YAML"),
        ("a.yaml", "- &a input: a\n- *a\n", "aliases"),
        ("a.yaml", "- input: !!python/object/apply:os.system [true]\n", "line 1: not valid YAML"),
        ("a.yaml", "input: a\n", "must be a list of cases"),
        ("a.yaml", "[]", "has no cases"),
        ("a.jsonl", '{"input": "a"}\n{"input": \n', "line 2, is not JSON"),
        ("a.jsonl", '{"input": "a"}\n[]\n', "line 2: is not a JSON object"),
        ("a.jsonl", '{"input": "  "}\n', "line 1: input: is empty"),
        ("a.jsonl", '{"input": "a\\u0000"}\n', "NUL"),
        ("a.jsonl", "", "has no cases"),
        ("a.csv", "question,answer\na,b\n", "line 1: there is no column input"),
        ("a.csv", "input;reference\na;b\n", "Separate the columns with commas"),
        ("a.csv", "input,input\na,b\n", "several columns 'input'"),
        ("a.csv", 'input,reference\n"a\nb",c\nd\n', "line 4: has 1 fields, but the first line has 2"),
        ("a.csv", 'input\n"a', "line 2: not valid CSV"),
        ("a.txt", "a", "ends in .yaml, .yml, .jsonl, .csv"),
    ],
)
def test_error_names_file_and_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        read_golden_set(write(tmp_path, name, text))
    assert message in str(error.value)
    assert name in str(error.value)


def test_reference_in_csv_is_a_list_an_object_or_a_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('input,reference\na,"[""sarah-chen"", 2]"\nb,"{""x"": 1}"\nc,[draft]\nd,12\n', encoding="utf-8")
    references = [case.reference for case in read_golden_set(path).cases]
    assert references == [["sarah-chen", 2], {"x": 1}, "[draft]", "12"]


def test_bytes_that_are_not_text_have_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"input\nok\n\xff\xfe\n")
    with pytest.raises(InvalidInputError, match="line 3: is not UTF-8"):
        read_golden_set(path)
    with pytest.raises(InvalidInputError, match="There is no file"):
        read_golden_set(tmp_path / "none.yaml")


async def fill_session(rem: Rem, scope: Scope) -> tuple[str, list[str]]:
    memory = rem.for_user(scope).sessions
    session = await memory.create_session(name="planning")
    texts = [("user", "Who leads Atlas?"), ("assistant", "Marta."), ("user", "And since when?"), ("assistant", "May.")]
    messages = [NewMessage(role=Role(role), content=text) for role, text in texts]
    stored = await memory.append(session.id, messages)
    return str(session.id), [str(message.id) for message in stored]


def test_unwritable_place_is_explained(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be written"):
        write_golden_set([GoldenCase(id="a", input="x")], tmp_path / "missing" / "golden.jsonl")


async def test_session_becomes_cases_with_their_history(rem_without_embedder: Rem, tmp_path: Path) -> None:
    rem = rem_without_embedder
    await fill_session(rem, ALICE)
    session_id = await rem.for_user(ALICE).sessions.resolve_session_id("planning")
    first, second = await golden_from_session(rem, ALICE, session_id)
    assert (first.input, first.reference, first.history) == ("Who leads Atlas?", "Marta.", [])
    assert (second.input, second.reference) == ("And since when?", "May.")
    assert [message.content for message in second.history] == ["Who leads Atlas?", "Marta."]
    for name in ("golden.jsonl", "golden.yaml"):
        write_golden_set([first, second], tmp_path / name)
        assert read_golden_set(tmp_path / name).cases == (first, second)
        with pytest.raises(InvalidInputError, match="exists"):
            write_golden_set([first], tmp_path / name)
        assert read_golden_set(tmp_path / name).cases == (first, second)
    with pytest.raises(NotFoundError):
        await golden_from_session(rem, BOB, session_id)


async def test_feedback_becomes_cases(rem_without_embedder: Rem) -> None:
    rem = rem_without_embedder
    session_id, ids = await fill_session(rem, ALICE)
    store = rem.for_user(ALICE).store
    await store.upsert(Feedback(session_id=session_id, message_id=ids[1], rating=1))
    await store.upsert(Feedback(session_id=session_id, message_id=ids[3], rating=-1, comment="It was June."))
    (praised,) = await golden_from_feedback(rem, ALICE)
    assert (praised.input, praised.reference) == ("Who leads Atlas?", "Marta.")
    (criticised,) = await golden_from_feedback(rem, ALICE, rating="negative")
    assert (criticised.input, criticised.reference) == ("And since when?", None)
    assert criticised.metadata["rejected"] == "May."
    assert criticised.metadata["comment"] == "It was June."
    assert len(await golden_from_feedback(rem, ALICE, rating="all")) == 2
    with pytest.raises(NotFoundError, match="No rated answer"):
        await golden_from_feedback(rem, BOB)
