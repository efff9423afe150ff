"""What an assistant said is found, but is no evidence: it comes after everything that the user said or stored."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from rem.app import Rem
from rem.context import Scope
from rem.models import Resource, Role
from rem.models.results import Result
from rem.sessions.message import NewMessage
from rem.tools.search import search_rem
from tests.tools.tool_env import env_for

_USER = "alice"
_INVENTED = "Your sister Livia lives in Turin, right beside the river."
_OTHER_FENCE = "Paul fell off a fence."
_QUESTION = "Where does my sister Livia live?"


def says(role: Role, text: str, speaker: str | None = None) -> NewMessage:
    return NewMessage(role=role, content=text, metadata={} if speaker is None else {"speaker": speaker})


@pytest.fixture
async def session_id(rem: Rem) -> UUID:
    """A chat in which the assistant invents an answer, and rows of the user that have less to do with the question."""
    session_id = uuid4()
    messages = [
        says(Role.USER, "We painted the fence in the garden."),
        says(Role.ASSISTANT, "A fence lasts longer with oil."),
        says(Role.USER, _QUESTION),
        says(Role.ASSISTANT, _INVENTED),
        says(Role.USER, _OTHER_FENCE),
    ]
    await rem.for_user(_USER).sessions.append(session_id, messages, create_session=True)
    await rem.for_user(_USER).sessions.append(
        uuid4(), [says(Role.USER, "My sister likes to swim.")], create_session=True
    )
    await rem.for_user(_USER).store.upsert(Resource(name="Family", content="Livia is the younger sister of Alice."))
    return session_id


def list_authors(result: Result) -> list[str | None]:
    return [row.said_by for row in result.hits]


@pytest.mark.usefixtures("session_id")
@pytest.mark.parametrize("clauses", ["", " FROM messages", " MODE text", " MODE vector MIN_SIMILARITY 0", " LIMIT 4"])
async def test_assistant_comes_after_all_rows_of_the_user(rem: Rem, clauses: str) -> None:
    result = await rem.for_user(_USER).query(f'SEARCH "{_QUESTION}"{clauses}')
    authors = list_authors(result)
    assert authors[0] is None
    assert authors == sorted(authors, key=lambda author: author is not None)
    assert _INVENTED in [row.record.get("content") for row in result.hits if row.said_by == "assistant"]


@pytest.mark.usefixtures("session_id")
async def test_single_row_is_not_the_assistants(rem: Rem) -> None:
    (row,) = (await rem.for_user(_USER).query(f'SEARCH "{_QUESTION}" LIMIT 1')).hits
    assert row.said_by is None


@pytest.mark.usefixtures("session_id")
@pytest.mark.parametrize("clauses", ["", " FROM messages"])
async def test_fuzzy_puts_the_assistant_last_and_says_so(rem: Rem, clauses: str) -> None:
    text = f'FUZZY "sister Livia lives in Turin" THRESHOLD 0.2{clauses}'
    authors = list_authors(await rem.for_user(_USER).query(text))
    assert authors[0] is None
    assert "assistant" in authors
    assert authors == sorted(authors, key=lambda author: author is not None)
    (first,) = (await rem.for_user(_USER).query(f"{text} LIMIT 1")).hits
    assert first.said_by is None


@pytest.mark.usefixtures("session_id")
async def test_answers_and_tools_put_the_assistant_last_and_say_so(rem: Rem) -> None:
    authors = list_authors(await rem.for_user(_USER).find(_QUESTION))
    assert authors[0] is None
    assert "assistant" in authors
    env = env_for(rem, _USER)
    for found in (
        await search_rem(env, f'SEARCH "{_QUESTION}"'),
        await search_rem(env, _QUESTION, mode="natural-language"),
    ):
        rows = found["results"]
        assert "said_by" not in rows[0]
        assert next(row["text"] for row in rows if row.get("said_by") == "assistant") == _INVENTED


async def test_answer_of_the_assistant_alone_is_not_clear(rem: Rem) -> None:
    await rem.for_user(_USER).sessions.append(uuid4(), [says(Role.ASSISTANT, _INVENTED)], create_session=True)
    answer = await rem.for_user(_USER).find(_QUESTION)
    assert [row.said_by for row in answer.hits] == ["assistant"]
    assert answer.has_note("weak")


@pytest.mark.usefixtures("session_id")
async def test_assistant_is_found_if_it_is_asked_for(rem: Rem) -> None:
    where = await rem.for_user(_USER).query("SEARCH \"fence\" FROM messages WHERE role = 'assistant'")
    assert {row.said_by for row in where.hits} == {"assistant"}
    for result in (
        await rem.for_user(_USER).query('SEARCH "What did you recommend for the fence?"'),
        await rem.for_user(_USER).find("What did you recommend for the fence?"),
    ):
        places = [row.record["content"] for row in result.hits]
        assert places.index("A fence lasts longer with oil.") < places.index(_OTHER_FENCE)


async def test_session_is_found_by_what_the_assistant_said(rem: Rem, session_id: UUID) -> None:
    walk = [says(Role.USER, "We walked beside a river.")]
    await rem.for_user(_USER).sessions.append(uuid4(), walk, create_session=True)
    result = await rem.for_user(_USER).query('SEARCH "Turin beside the river" FROM sessions')
    assert result.hits[0].record["id"] == str(session_id)
    assert list_authors(result) == ["assistant", None]


async def test_speaker_of_an_imported_talk_is_evidence(rem: Rem) -> None:
    talk = [
        says(Role.USER, "Where do you live now?", "Alice"),
        says(Role.ASSISTANT, "I live in Turin now, beside the river.", "Livia"),
        says(Role.USER, "I was near that river once.", "Alice"),
    ]
    await rem.for_user(_USER).sessions.append(uuid4(), talk, create_session=True)
    (best, *_) = (await rem.for_user(_USER).query('SEARCH "Where does Livia live?"')).hits
    assert (best.record["content"], best.said_by) == ("I live in Turin now, beside the river.", None)
    await rem.dreamer().dream(Scope.for_user(_USER))
    assert "Turin" in str((await rem.for_user(_USER).query("SELECT summary FROM moments")).rows)


@pytest.mark.usefixtures("session_id")
async def test_dreams_take_nothing_from_the_assistant(rem: Rem) -> None:
    await rem.dreamer().dream(Scope.for_user(_USER))
    for table in ("moments", "ontologies", "users"):
        assert "Turin" not in str((await rem.for_user(_USER).query(f"SELECT * FROM {table}")).rows)


async def test_many_answers_leave_the_user_the_places(rem: Rem) -> None:
    answers = [says(Role.ASSISTANT, f"The red kayak has number {number}.") for number in range(40)]
    own = [says(Role.USER, f"On day {day} we took the kayak.") for day in range(20)]
    await rem.for_user(_USER).sessions.append(uuid4(), [*answers, *own], create_session=True)
    authors = list_authors(await rem.for_user(_USER).query('SEARCH "number of the red kayak"'))
    assert authors == [None] * 7 + ["assistant"] * 3
    authors = list_authors((await rem.for_user(_USER).find("number of the red kayak")).keep_best(10))
    assert authors == sorted(authors, key=lambda author: author is not None)
    assert authors.count("assistant") <= 3
