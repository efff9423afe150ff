"""The answer engine answers in one sentence, says what is nearest, or that it found nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from rem.answers.evidence import ReadHit, ReadResult
from rem.answers.sources import widen_quote
from rem.answers.wording import NEAREST, write_answer
from rem.app import Rem
from rem.models import Message, MessageKind, Resource, Role, User
from rem.models.results import Answer, Hit
from rem.search.reader import RowReading, RowText
from rem.sessions.message import NewMessage
from tests.ingest.helpers import markdown

USER = "alice@example.com"
NOW = datetime(2026, 11, 18, 9, 0, tzinfo=UTC)
"""A Wednesday."""


async def say(rem: Rem, *texts: str, at: datetime = NOW) -> None:
    """Store messages of one session, a minute apart."""
    memory = rem.for_user(USER).sessions
    session = uuid4()
    for text in texts:
        await memory.begin_turn(session, NewMessage(role=Role.USER, content=text), agent="rem", metadata={})
    async with rem.database.connection() as connection:
        await connection.execute(
            "UPDATE rem.messages SET created_at = $1::timestamptz + message_index * interval '1 s' "
            "WHERE session_id = $2",
            at,
            session,
        )


async def ask(rem: Rem, question: str, *, previous: str = "") -> Answer:
    return await rem.for_user(USER).ask(question, previous=previous, now=NOW)


async def test_fact_is_answered_with_its_sentence_and_the_date_of_its_source(rem: Rem) -> None:
    await say(rem, "The spare key of my bike hangs behind the fuse box.", "Ravi fixed the tyres for 130.")
    answer = await ask(rem, "Where is the spare key of my bike?")
    assert answer.status == "answered"
    assert answer.text.splitlines()[0] == "The spare key of my bike hangs behind the fuse box. (you, 18 Nov 2026)"
    assert answer.quote is not None
    assert answer.hits[answer.quote.hit].shown_text[answer.quote.start : answer.quote.end] == answer.quote.text
    assert answer.confidence > 0.7


async def test_typo_and_missing_question_mark_change_nothing(rem: Rem) -> None:
    await say(rem, "The spare key of my bike hangs behind the fuse box.", "Ravi fixed the tyres for 130.")
    answer = await ask(rem, "where is teh spare key of my bkie")
    assert answer.status == "answered"
    assert "fuse box" in answer.text.splitlines()[0]


async def test_nothing_is_one_sentence_without_rows(rem: Rem) -> None:
    answer = await ask(rem, "What is the capital of Mongolia?")
    assert (answer.status, answer.quote, answer.hits) == ("nothing", None, [])
    assert "\n" not in answer.text
    await say(rem, "We had soup for lunch.")
    assert (await ask(rem, "What is the licence number of the tractor?")).status != "answered"


async def test_text_of_an_answer_has_no_keys_and_no_paths(rem: Rem) -> None:
    store = rem.for_user(USER).store
    note = Resource(name="home/alarm.md#1", content="# Shop alarm\nThe code of the shop alarm is 5093.", timestamp=NOW)
    await store.upsert(note)
    answer = await ask(rem, "What is the code of the shop alarm?")
    assert answer.text.splitlines()[0] == "The code of the shop alarm is 5093. (Shop alarm, 18 Nov 2026)"
    assert answer.hits[0].key not in answer.text
    assert answer.as_json()["hits"][0]["key"] == answer.hits[0].key


async def test_date_of_the_title_is_not_repeated(rem: Rem) -> None:
    content = "# Meeting, 18 Nov 2026\nThe code of the shop alarm is 5093."
    await rem.for_user(USER).store.upsert(Resource(name="alarm.md", content=content, timestamp=NOW))
    answer = await ask(rem, "What is the code of the shop alarm?")
    assert answer.text.splitlines()[0] == "The code of the shop alarm is 5093. (Meeting, 18 Nov 2026)"


async def test_relative_time_is_resolved_by_the_date_of_the_message(rem: Rem) -> None:
    await say(rem, "The piano tuner came last Friday.")
    assert "last Friday (13 Nov 2026)" in (await ask(rem, "When did the piano tuner come?")).text


async def test_replaced_statement_comes_second_and_says_what_replaced_it(rem: Rem) -> None:
    await say(rem, "The dentist appointment is on Monday at 3 pm.", at=NOW - timedelta(days=2))
    await say(rem, "The dentist appointment was moved, it is on Friday at 10 am now.", at=NOW)
    answer = await ask(rem, "When is the dentist appointment?")
    first, second = answer.text.splitlines()[:2]
    assert "Friday" in first
    assert "16 Nov 2026" in second
    assert "Monday" not in answer.text
    old = answer.hits[1]
    assert "Monday" in old.shown_text
    assert old.replaced_by is not None
    assert old.replaced_by.key == answer.hits[0].key


@pytest.mark.parametrize(
    ("older", "newer", "question"),
    [
        ("My bike is red, and its key is in the blue jar.", "I painted the shed blue.", "what colour is the shed"),
        ("My bike is red, and its key is in the blue jar.", "My bike is green now.", "where is the key of my bike"),
        ("My sister Klara lives in Graz.", "My cat is called Miso.", "what's my cat called"),
    ],
)
async def test_text_about_something_else_replaces_nothing(rem: Rem, older: str, newer: str, question: str) -> None:
    await say(rem, older, at=NOW - timedelta(days=2))
    await say(rem, newer, at=NOW)
    assert not any(hit.replaced_by for hit in (await ask(rem, question)).hits)


async def test_confirmed_correction_replaces_whatever_the_model_says(rem: Rem) -> None:
    store = rem.for_user(USER).store
    old = await store.upsert(Resource(name="boat", content="The boat is called Gull.", timestamp=NOW))
    metadata = {"supersedes": [f"resources/{old.id}"]}
    new = Resource(name="boat 2", content="The boat is called Tern.", timestamp=NOW, metadata=metadata)
    await store.upsert(new)
    answer = await ask(rem, "What is the boat called?")
    assert "Tern" in answer.text.splitlines()[0]
    assert answer.hits[1].replaced_by is not None


async def test_description_is_resolved_before_what_is_asked_about_it(rem: Rem) -> None:
    await say(rem, "Ilse Brandt tunes our piano every spring.", "We bought new curtains for the hall.")
    await say(rem, "Ilse Brandt has the phone number 555 0192.")
    answer = await ask(rem, "What is the phone number of the woman who tunes our piano?")
    assert "555 0192" in answer.text
    assert {"Ilse Brandt has the phone number 555 0192."} <= {hit.shown_text for hit in answer.hits}


async def test_follow_up_is_searched_with_the_question_before_it(rem: Rem) -> None:
    await say(rem, "Marta repairs violins in Ghent.", "Marta charges 80 euros for a new bridge.")
    answer = await ask(rem, "And what does she charge?", previous="Who repairs violins in Ghent?")
    assert "80 euros" in answer.text.splitlines()[0]


async def test_message_that_asked_for_a_note_is_not_told_beside_the_note(rem: Rem) -> None:
    await say(rem, "Remember: the boat is called Tern.")
    await rem.for_user(USER).remember("the boat is called Tern.")
    answer = await ask(rem, "What is the boat called?")
    assert [hit.table for hit in answer.hits if "Tern" in hit.shown_text] == ["resources"]
    assert answer.text.count("Tern") == 1


@pytest.mark.parametrize(("relevance", "lines"), [(-2.0, 2), (-4.0, 1)])
@pytest.mark.parametrize("confidence", [0.15, 0.3])
def test_row_that_hardly_answers_is_not_shown_beside_the_best_one(
    relevance: float, lines: int, confidence: float
) -> None:
    def read(text: str, relevance: float) -> ReadHit:
        hit = Hit("messages", text, {"content": text, "role": "user"})
        return ReadHit(hit, RowText(text), RowReading(relevance, 0.5, (0, len(text)), (0, len(text)), 0.0))

    rows = [read("Marta brings the camera.", -4.0), read("Hi there", relevance)]
    answer = write_answer(ReadResult("who brings the camera", rows, confidence))
    shown = [line for line in answer.text.splitlines() if line != NEAREST]
    assert len(shown) == lines
    assert "camera" in shown[0]


async def test_question_of_the_user_is_no_evidence(rem: Rem) -> None:
    await say(rem, "What is the name of the neighbour's cat?")
    assert (await ask(rem, "What is the name of the neighbour's cat")).status == "nothing"
    stored = await rem.for_user(USER).store.find(Message)
    assert [message.kind for message in stored] == [MessageKind.QUESTION]


async def test_exact_key_is_looked_up_and_query_is_run(rem: Rem) -> None:
    store = rem.for_user(USER).store
    await store.upsert(User(name="Sarah Chen", summary="Sarah Chen leads the platform team."))
    named = await ask(rem, "sarah-chen")
    assert (named.status, named.confidence) == ("answered", 1.0)
    assert named.text.startswith("Sarah Chen leads the platform team.")
    found = await ask(rem, 'LOOKUP "Sarah Chen"')
    assert [hit.key for hit in found.hits] == ["sarah-chen"]
    counted = await ask(rem, "SELECT count(*) AS people FROM users")
    assert "people: 1" in counted.text


async def test_memory_of_another_user_is_not_read(rem: Rem) -> None:
    await say(rem, "The spare key of my bike hangs behind the fuse box.")
    answer = await rem.for_user("bob@example.com").ask("Where is the spare key of my bike?")
    assert answer.status == "nothing"


async def test_chat_tells_statements_from_questions(rem: Rem) -> None:
    await say(rem, "The spare key of my bike hangs behind the fuse box.")
    assert isinstance(await rem.for_user(USER).reply("where does the spare key of my bike hang"), Answer)
    told = await rem.for_user(USER).reply("My brother Piet moved to Leiden on Monday.")
    assert not isinstance(told, Answer)
    assert told == "statement"


@pytest.mark.parametrize("place", [0, 1, 2])
def test_header_of_a_table_and_the_rule_below_it_give_way_to_the_first_row(place: int) -> None:
    text = ROOMS[ROOMS.index("| Guest") :]
    offset = sum(len(line) + 1 for line in text.splitlines()[:place])
    start, end = widen_quote(text, offset, offset + 9)
    assert text[start:end] == "| Tom   | 214  | fish | €120  |"


async def test_csv_file_is_counted_by_its_name_and_quoted_by_rows(rem: Rem, tmp_path: Path) -> None:
    (tmp_path / "lodgers.csv").write_text(
        "Name,Room,Nights,Arrives\nTom,214,3,2026-12-04\nMarta,215,2,2026-12-05\nInes,301,5,2026-12-04\n"
    )
    await rem.for_user(USER).ingest(tmp_path / "lodgers.csv")
    assert "3: Tom, Marta, Ines (lodgers" in (await ask(rem, "How many lodgers are there?")).text
    found = await ask(rem, "Marta's nights in room 215 with us")
    assert found.quote is not None
    assert found.quote.text == "Name: Marta; Room: 215; Nights: 2; Arrives: 2026-12-05"


ROOMS = """# Wedding guests

| Guest | Room | Food | Price |
|-------|-----:|------|------:|
| Tom   | 214  | fish | €120  |
| Anna  | 17   | soup | €80   |
| Ivo   | 18   | fish | €100  |
"""


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is Tom's room?", "Tom's room is 214"),
        ("Which guests have fish?", "Tom, Ivo"),
        ("How many wedding guests have fish?", "2 of 3: Tom, Ivo"),
        ("What is the price of all guests?", "300 EUR together: Tom €120, Anna €80, Ivo €100"),
    ],
)
async def test_table_of_a_note_answers(rem: Rem, question: str, answer: str) -> None:
    await rem.for_user(USER).ingester().ingest(markdown(ROOMS))
    found = await ask(rem, question)
    assert (found.status, found.text.partition(" (")[0]) == ("answered", answer)
    assert "Wedding guests" in found.text


async def test_message_that_may_be_a_statement_is_not_lost_silently(rem: Rem) -> None:
    memory = rem.for_user(USER)
    told = await memory.reply("Lunch with Tom on Monday")
    assert isinstance(told, Answer)
    assert [note.code for note in told.notes if note.code == "maybe_told"] == ["maybe_told"]
    asked = await memory.reply("what is the licence number of the tractor")
    assert isinstance(asked, Answer)
    assert not [note for note in asked.notes if note.code == "maybe_told"]
