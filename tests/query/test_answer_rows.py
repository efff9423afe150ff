"""Answers in plain words put the newest valid statement first, mark what it replaces, and drop copies."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import asyncpg
import pytest

from rem.app import Rem
from rem.memory.message import NewMessage
from rem.models import Moment, Resource, Role
from rem.models.field_types import utc_now
from rem.query.answer_rows import drop_copies, rate_rows
from rem.query.natural import WEAK_NOTE
from rem.query.question_words import QuestionWords
from rem.retrieval.reranker import order_by_score
from rem.settings import EmbeddingSettings, Settings

_USER = "alice"
_NOISE = [
    "The cat is called Miso.",
    "I bought stamps yesterday.",
    "Lena works at the bakery on Torvet.",
    "We had soup for dinner.",
    "The printer on floor 2 is broken.",
    "Ulla plays the cello.",
    "My bike is a blue Trek.",
    "The sauna opens at six.",
    "Anders sold his van.",
    "It rained all day in Odense.",
    "The invoice 4411 is paid.",
    "Our wifi at the cabin is bluefin.",
    "I bought a ladder.",
]
_REPLACED = [
    ("my doctor is dr. Adam", "my doctor is dr. Weiss", "who is my doctor"),
    ("I drive a golf", "sold the golf, I drive a tesla now", "which car do I drive"),
    ("my back hurts on the right side", "my back is fine again btw", "does my back still hurt?"),
    (
        "i parked my bike at the back entrance of the hospital",
        "moved my bike home, its in our cellar now",
        "where's my bike?",
    ),
    ("I live in Svendborg.", "We moved to Aarhus last week.", "Where do I live?"),
    (
        "My code word for the boat is heliotrope-91.",
        "My new code word for the boat is larkspur-12.",
        "What is my code word for the boat?",
    ),
    ("The standup is at 9:30.", "The standup is at 10:15 from now on.", "When is the standup?"),
    (
        "We decided to go with Kafka for the event bus.",
        "We dropped the Kafka plan, NATS it is for the event bus.",
        "What did we decide for the event bus?",
    ),
    (
        "My dentist appointment is on Wednesday at 3.",
        "Actually it's on Thursday, not Wednesday.",
        "When is my dentist appointment?",
    ),
    ("The offsite is in Lisbon in June.", "The offsite got cancelled.", "Where is the offsite?"),
    (
        "My flight to Oslo is SK1427 on Friday.",
        "They rebooked me: my flight to Oslo is now SK1431.",
        "What is my flight number to Oslo?",
    ),
    ("I work at Maersk.", "I quit Maersk and started at Vestas on Monday.", "Where do I work?"),
    (
        "Tom is allergic to peanuts.",
        "Turns out Tom isn't allergic to peanuts, it's cashews.",
        "What is Tom allergic to?",
    ),
    ("The gate code is 4471.", "They changed the gate code to 9921.", "What's the gate code?"),
    ("Our landlord is Mr. Holm.", "Our landlord is now Mrs. Friis.", "Who is our landlord?"),
    (
        "The budget for the kitchen is 12000 euros.",
        "We raised the kitchen budget to 15000 euros.",
        "What is the budget for the kitchen?",
    ),
    ("Priya leads the Aurora project.", "Jonas took over Aurora from Priya.", "Who leads Aurora?"),
    (
        "We use Zep for the washroom floors.",
        "We no longer use Zep on the washroom floors, it's Green Solutions from here on.",
        "What do we clean the washroom floors with?",
    ),
    ("The staging server is called willow.", "The staging server is now rowan.", "What is the staging server called?"),
    (
        "The guests from Linz are staying till Saturday.",
        "The guests from Linz are stopping one more night, so till Sunday.",
        "Till when are the guests from Linz staying?",
    ),
    (
        "Wanda handles the bus passes, ask her before eight.",
        "The bus passes aren't Wanda's any more, Ms. Tremblay does them.",
        "Who handles the bus passes?",
    ),
    (
        "The dishwasher is broken. The repair man comes on Friday between 8 and 10.",
        "The repair man called, he comes on Saturday at nine instead of Friday.",
        "When will the dishwasher be repaired?",
    ),
    ("router pw is heronfly22", "router pw changed cos of the neighbours, its now gullwing58", "router password"),
    # Without a word of change: both answer the question, by the reranker.
    (
        "The hotel on the quay takes 60 croissants for breakfast.",
        "The hotel on the quay takes 40 croissants for breakfast, it is the quiet season.",
        "How many croissants does the hotel on the quay take?",
    ),
    (
        "Mr Szabo wants 48 for the plot in the allotment.",
        "Mr Szabo wants 55 for the allotment plot from spring.",
        "How much does Mr Szabo want for the plot?",
    ),
    (
        "the spare key is with mrs doherty at number 9",
        "mrs doherty moved away, key is with tom upstairs now",
        "who has the spare key?",
    ),
    ("the car insurance with Aviva costs 412 a year", "Aviva put it up to 455", "how much is the car insurance"),
    # The newer text names the old value as dropped.
    ("We use FreeRTOS on the sensor board.", "We dropped FreeRTOS; we go with Zephyr", "Which RTOS do we use?"),
    ("Our builds run on Jenkins at the office.", "Jenkins is out, GitLab is in", "Where do our builds run?"),
    ("Our phone contract is with Vodafone.", "we switched from Vodafone to O2", "Which phone company do we have?"),
    ("I work at Maersk in the harbour office.", "I left Maersk and joined Vestas", "Where do I work?"),
    ("My running shoes are Asics Nimbus.", "Ditched the Asics, got Brooks now.", "What running shoes do I have?"),
    ("I lent my blue tent to Oskar.", "Oskar brought back the tent with a hole in it.", "Where is my blue tent?"),
]
_NOT_REPLACED = [
    (
        "Our conductor picked Finlandia for the autumn concert.",
        "The concert's been moved, it's on 25 October now, in the school gym.",
        "Which piece do we play at the autumn concert?",
    ),
    ("my exam is on the 14th", "bex cant do may, her exam. lisbon is now 10 sept", "when is my exam"),
    ("bex goes back to uni for speech therapy", "bex cant do may, lisbon is now in september", "what will bex study"),
    ("Marta is my sister.", "Marta is coming on Saturday.", "Who is Marta?"),
    ("my phone number is 1110", "my office phone number is 2220", "what is my phone number"),
    (
        "Search deploys go out every thursday",
        "Billing deploys go out every wednesday now",
        "when do search deploys go out",
    ),
    ("Team Alpha deploys on Tuesday", "Team Beta deploys on Friday", "When does team Alpha deploy?"),
    ("My rent is 980 euros.", "The rent of Jonas is 700 euros.", "How much is my rent?"),
    ("Marta likes tulips.", "I cancelled dinner with Marta.", "What does Marta like?"),
    ("The meeting on Monday is in room 4.", "The meeting on Tuesday is in room 5.", "Where is the meeting on Monday?"),
    ("I had lunch with Priya at Noma.", "I had lunch with Jonas at Amass.", "Where did I have lunch with Priya?"),
    (
        "The neighbours' tortoise eats dandelion leaves, never lettuce.",
        "We won't have to look after the tortoise any more.",
        "What does the neighbours' tortoise eat?",
    ),
    (
        "Jonas teaches at the Saint Barbara school.",
        "The parents' evenings of Jonas's school have changed, they are on Mondays now.",
        "At which school does Jonas teach?",
    ),
    ("Dad was a signalman.", "Dad's old watch turned up in a box, it was not lost after all.", "What was Dad's job?"),
    # The newer text changes another value of the same thing.
    (
        "My dentist is Dr. Okoro, appointment on Wednesday at 9.",
        "The dentist is on Thursday now.",
        "who is my dentist?",
    ),
    ("The plumber is Mr. Kranz, he comes on Friday at 8.", "The plumber now comes on Monday.", "who is the plumber?"),
    ("My flight is LH 831 on Monday from Hamburg.", "The flight is on Tuesday now.", "What is my flight number?"),
    ("My flight is LH 831 on Monday from Hamburg.", "The flight is on Tuesday now.", "Which flight do I take?"),
    (
        "My flight is LH 831 on Monday from Hamburg.",
        "The flight is on Tuesday now.",
        "Where does my flight leave from?",
    ),
    ("We chat on Slack, channel #ops for alarms.", "We ditched Slack for Zulip.", "Which channel is for alarms?"),
    ("My running shoes are Asics, size 43.", "Ditched the Asics, got Brooks now.", "What size are my running shoes?"),
    ("The dentist is on Friday at 10.", "Ana's birthday is on 12 May.", "When is the dentist?"),
    ("My favourite restaurant is Bistro Nord.", "My favourite colour is teal.", "What is my favourite restaurant?"),
    # The same kind of fact about another thing.
    ("Team Alpha deploys on Tuesday.", "Team Beta deploys on Friday.", "When does team Alpha deploy?"),
    ("my mother's birthday is 4 june", "my father's birthday is 9 may", "when is my mother's birthday"),
    ("Server db-1 has 64 GB RAM.", "Server db-2 has 128 GB RAM.", "How much RAM does db-1 have?"),
    ("my rent is 980 euros", "the rent of Jonas is 700 euros", "how much is my rent?"),
    ("Nadia's desk is on floor 3.", "Priya's desk is on floor 5.", "On which floor is Nadia's desk?"),
    ("The summer party is on 3 July.", "The Christmas party is on 11 December.", "When is the summer party?"),
    ("The first chapter is due on Monday.", "The second chapter is due on Friday.", "When is the first chapter due?"),
]


async def tell(rem: Rem, sql: asyncpg.Connection[asyncpg.Record], days: int, *texts: str) -> None:
    """Store messages in a session of some days ago."""
    session_id = uuid4()
    messages = [NewMessage(role=Role.USER, content=text) for text in texts]
    await rem.memory(_USER).append(session_id, messages, create_session=True)
    statement = "UPDATE messages SET created_at = created_at - make_interval(days => $1) WHERE session_id = $2"
    await sql.execute(statement, days, session_id)


async def answer(rem: Rem, question: str) -> list[dict[str, Any]]:
    return (await rem.ask(question, user=_USER)).results


@pytest.mark.parametrize(("old", "new", "question"), _REPLACED)
async def test_newer_statement_comes_first_and_the_older_is_marked(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record], old: str, new: str, question: str
) -> None:
    if new.startswith("Actually"):
        await tell(rem, sql, 5, *_NOISE[:2], old, new)
    else:
        await tell(rem, sql, 5, *_NOISE[:2], old)
        await tell(rem, sql, 1, *_NOISE[2:4], new)
    await tell(rem, sql, 3, *_NOISE[4:])
    rows = await answer(rem, question)
    assert rows[0]["record"]["content"] == new
    assert "superseded_by" not in rows[0]
    (replaced,) = [row for row in rows if row["record"]["content"] == old]
    assert replaced["superseded_by"] == rows[0]["key"]
    assert replaced["superseded_at"] == rows[0]["happened_at"][:10]


@pytest.mark.parametrize(
    ("old", "new", "question"),
    [
        ("I live in Svendborg.", "We moved to Aarhus last week.", "Where do I live?"),
        ("The standup is at 9:30.", "The standup is at 10:15 from now on.", "When is the standup?"),
        (
            "My dentist appointment is on 3 December at 14:30.",
            "The dentist moved my appointment to 10 December at 9:00.",
            "When is my dentist appointment?",
        ),
    ],
)
@pytest.mark.parametrize("is_old_remembered", [False, True])
async def test_remembered_statement_replaces_an_older_one(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record], is_old_remembered: bool, old: str, new: str, question: str
) -> None:
    await tell(rem, sql, 5, *_NOISE, *([] if is_old_remembered else [old]))
    if is_old_remembered:
        await rem.remember(old, user=_USER)
    note = await rem.remember(new, user=_USER)
    rows = await answer(rem, question)
    assert rows[0]["key"] == note.key
    (replaced,) = [row for row in rows if row["record"]["content"] == old]
    assert replaced["superseded_by"] == note.key


async def test_correction_of_what_was_just_said_leaves_other_values_alone(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    told = ("My dentist is Dr. Okoro, appointment on Wednesday at 9.", "Actually it is on Thursday at 11.")
    await tell(rem, sql, 1, *_NOISE[:2], *told)
    for question, place in (("who is my dentist?", 0), ("when is my dentist appointment?", 1)):
        rows = await answer(rem, question)
        assert rows[0]["record"]["content"] == told[place], question
        assert ("superseded_by" in rows[1]) is bool(place)


async def test_statement_replaces_a_note_whose_value_it_names_as_dropped(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    note = Resource(name="Firmware", content="We use FreeRTOS as the RTOS on the sensor board. Build with cmake.")
    await rem.store(_USER).upsert(note)
    await tell(rem, sql, 1, *_NOISE, "We dropped FreeRTOS; we go with Zephyr")
    rows = await answer(rem, "Which RTOS do we use?")
    assert rows[0]["record"]["content"].endswith("Zephyr")
    assert rows[1]["superseded_by"] == rows[0]["key"]


async def test_confirmed_correction_replaces_only_what_it_changes(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await tell(rem, sql, 1, "My flight is LH 831 on Monday 14:20 from Hamburg", *_NOISE)
    changes = rem.changes(_USER)
    request = await changes.request_correction("the flight", "the flight is on Tuesday")
    await changes.confirm(request.approval, by=_USER)
    for question in ("What is my flight number?", "Where does my flight leave from?"):
        rows = await answer(rem, question)
        assert "LH 831" in rows[0]["record"]["content"], question
        assert "superseded_by" not in rows[0], question
    rows = await answer(rem, "When is my flight?")
    assert rows[0]["record"]["content"] == "the flight is on Tuesday"
    assert rows[1]["superseded_by"] == rows[0]["key"]


async def test_stored_text_does_not_replace_a_statement(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    await tell(rem, sql, 5, *_NOISE, "The standup is at 9:30.")
    plan = Resource(name="Plan", content="The standup is at 10:15 from now on.", timestamp=utc_now())
    await rem.store(_USER).upsert(plan)
    assert not [row for row in await answer(rem, "When is the standup?") if "superseded_by" in row]


@pytest.mark.parametrize(("right", "other", "question"), _NOT_REPLACED)
async def test_statement_about_something_else_replaces_nothing(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record], right: str, other: str, question: str
) -> None:
    await tell(rem, sql, 5, *_NOISE[:2], right)
    await tell(rem, sql, 1, *_NOISE[2:4], other)
    await tell(rem, sql, 3, *_NOISE[4:])
    rows = await answer(rem, question)
    assert rows[0]["record"]["content"] == right
    assert not [row for row in rows if "superseded_by" in row]


@pytest.mark.parametrize(
    ("other", "right", "question"),
    [
        ("My first exam is on November 24.", "The second exam is on December 8.", "when is my second exam?"),
        ("Nils goes to Oakfield School.", "Freya goes to Sunhill School.", "which school does freya go to"),
        ("My office is in room 12.", "My office at the university is in room 308.", "where is my university office?"),
    ],
)
async def test_fact_about_another_thing_is_not_marked_as_replaced(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record], other: str, right: str, question: str
) -> None:
    await tell(rem, sql, 5, other)
    await tell(rem, sql, 1, right, *_NOISE)
    rows = await answer(rem, question)
    assert rows[0]["record"]["content"] == right
    assert not [row for row in rows if "superseded_by" in row]


async def test_change_of_something_that_is_not_asked_for_is_not_marked(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await tell(rem, sql, 5, "The repair man comes on Friday at nine.", "Beatriz stops working for us on 30 June.")
    await tell(rem, sql, 1, "The repair man called, he comes on Saturday at nine instead of Friday.")
    rows = await answer(rem, "When does Beatriz stop working for us?")
    assert rows[0]["record"]["content"] == "Beatriz stops working for us on 30 June."
    assert len(rows) > 2
    assert not [row for row in rows if "superseded_by" in row]


@pytest.mark.parametrize("question", ["what is the gate code", "tell me the gate code", "gate code"])
async def test_later_message_replaces_a_remembered_statement(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record], question: str
) -> None:
    await rem.remember("The gate code is 4471.", user=_USER)
    await tell(rem, sql, 0, "The gate code is 5518 now.")
    rows = (await rem.ask(question, user=_USER)).results
    assert [row["record"]["content"] for row in rows[:2]] == ["The gate code is 5518 now.", "The gate code is 4471."]
    assert "superseded_by" in rows[1]


async def test_weak_match_is_noted(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    await tell(rem, sql, 1, *_NOISE)
    assert WEAK_NOTE in (await rem.ask("Who won the chess championship in Reykjavik?", user=_USER)).notes
    for question in ("Who plays the cello?", "Which floor is the broken printer on?", "When does the sauna open?"):
        assert WEAK_NOTE not in (await rem.ask(question, user=_USER)).notes, question


async def test_unknown_identifier_is_noted(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    await tell(rem, sql, 1, *_NOISE, *(f"Ticket {number} is about the login." for number in range(1721, 1730)))
    assert WEAK_NOTE in (await rem.ask("What is ticket 1799 about?", user=_USER)).notes
    assert WEAK_NOTE not in (await rem.ask("What is ticket 1799 about?", user="bob")).notes
    known = await rem.ask("What is ticket 1723 about?", user=_USER)
    assert known.results[0]["record"]["content"] == "Ticket 1723 is about the login."
    assert WEAK_NOTE not in known.notes


@pytest.mark.parametrize(
    "question", ["What is the latest about the sauna?", "what's new with the sauna", "Was gibt es Neues zur Sauna?"]
)
async def test_latest_about_a_topic_comes_newest_first(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record], question: str
) -> None:
    told = {4: "The sauna was painted.", 1: "The sauna has a new oven.", 2: "The door of the sauna is stuck."}
    for days, text in told.items():
        await tell(rem, sql, days, *_NOISE[:3], text)
    result = await rem.ask(question, user=_USER)
    assert [row["record"]["content"] for row in result.results[:3]] == [told[1], told[2], told[4]]
    assert result.notes[0].startswith("Understood as: the newest about ")


async def test_few_texts_answer_clearly_or_not(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    await tell(rem, sql, 1, "We moved to Odense last week")
    for question in ("Where do I live?", "Where did we move?", "What's my address?"):
        assert WEAK_NOTE not in (await rem.ask(question, user=_USER)).notes, question
    for question in ("Who fixed the boiler?", "Where does Tom live?"):
        result = await rem.ask(question, user=_USER)
        assert not result.results or WEAK_NOTE in result.notes, question


async def test_author_says_where_they_work_in_their_own_words(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await tell(rem, sql, 3, "im mia, nurse on a childrens ward in kiel", "so i work on christmas eve, late shift")
    await tell(rem, sql, 1, "the trolley is not my job after all, jannis gets it", *_NOISE)
    rows = await answer(rem, "Where do I work?")
    assert rows[0]["record"]["content"].startswith("im mia, nurse")
    rows = await answer(rem, "Which day do I have to work at Christmas?")
    assert rows[0]["record"]["content"].startswith("so i work on christmas eve")
    assert not [row for row in rows if "superseded_by" in row]


async def test_questions_do_not_change_the_rarity_of_words(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    """A question that is asked again and again must not make its own words common."""
    await tell(rem, sql, 3, *_NOISE)
    question = "Which floor is the broken printer on?"
    before = await answer(rem, question)
    for _ in range(3):
        await tell(rem, sql, 1, *[question] * 10)
    after = await answer(rem, question)
    assert [row["key"] for row in after] == [row["key"] for row in before]
    assert [row["score"] for row in after] == pytest.approx([row["score"] for row in before], abs=1e-4)
    (found, *_) = (await rem.query(f'SEARCH "{question}" FROM messages', user=_USER)).results
    assert found["record"]["content"] == question


async def test_of_several_changes_the_newest_wins(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    await tell(rem, sql, 6, "The gate code is 4471.")
    await tell(rem, sql, 3, "They changed the gate code to 9921.")
    await tell(rem, sql, 1, "The gate code is now 1188.")
    rows = await answer(rem, "What is the gate code?")
    assert ["1188" in rows[0]["record"]["content"], *("superseded_by" in row for row in rows)] == [
        True,
        False,
        True,
        True,
    ]


async def test_other_users_statements_replace_nothing(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    await tell(rem, sql, 6, "The gate code is 4471.")
    await rem.memory("bob").append(
        uuid4(), [NewMessage(role=Role.USER, content="They changed the gate code to 9921.")], create_session=True
    )
    rows = await answer(rem, "What is the gate code?")
    assert [row["record"]["content"] for row in rows] == ["The gate code is 4471."]


async def test_moment_that_copies_a_message_is_not_shown(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    await tell(rem, sql, 2, "The gate code is 4471.")
    at = utc_now() - timedelta(days=2)
    await rem.store(_USER).upsert(Moment(name="Gate", starts_timestamp=at, summary="The gate code is 4471."))
    assert [row["table"] for row in await answer(rem, "What is the gate code?")] == ["messages"]


def test_longer_text_is_kept_beside_its_parts_only_if_it_comes_later() -> None:
    def row(table: str, text: str) -> dict[str, Any]:
        return {"table": table, "key": text, "passage": {"text": text}}

    message, moment = row("messages", "A is b."), row("moments", "A is b. C is d.")
    assert drop_copies([message, moment]) == [message, moment]
    assert drop_copies([moment, message]) == [moment]


def test_row_without_a_passage_keeps_its_place() -> None:
    rows = [{"table": "users", "key": "a", "score": 0.5}, {"table": "users", "key": "b", "score": 0.4}]
    assert drop_copies(rows) == rows
    assert order_by_score(rate_rows("Who is a?", QuestionWords.of("Who is a?"), rows)) == [0, 1]


async def test_times_are_in_the_time_zone_of_the_settings(settings: Settings) -> None:
    zone = ZoneInfo("Pacific/Kiritimati")
    in_zone = settings.model_copy(update={"rem_time_zone": str(zone), "embedding": EmbeddingSettings(provider="none")})
    async with Rem.open(in_zone) as rem:
        note = await rem.remember("The boat is blue.", user="alice")
        assert note.name.startswith(f"{datetime.now(zone):%Y-%m-%d} ")
        (row,) = (await rem.query('SEARCH "boat" SINCE today', user="alice")).results
        assert row["happened_at"].endswith("+14:00")
        assert datetime.fromisoformat(row["happened_at"]) == note.timestamp
        tomorrow = datetime.now(zone) + timedelta(days=1)
        assert (await rem.query('SEARCH "boat" SINCE today', user="alice", now=tomorrow)).results == []


_CONTINUED = [
    (
        "A scooter scratched my door, the rider is Edgar Frade.",
        "He works as a cook at the Casa Guedes.",
        "Where does Edgar work?",
    ),
    (
        "We operated on a Great Dane named Ulisses until ten.",
        "His owner is Raquel Sottomayor, she runs the bookshop.",
        "Who owns Ulisses?",
    ),
    (
        "saw bex after class, shes going back to uni for speech therapy",
        "starts in october, in kiel",
        "when does bex start",
    ),
]


@pytest.mark.parametrize(("first", "second", "question"), _CONTINUED)
async def test_message_is_found_by_the_subject_that_only_the_message_before_names(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record], first: str, second: str, question: str
) -> None:
    await tell(rem, sql, 3, *_NOISE[:4], first, second, *_NOISE[4:])
    rows = await answer(rem, question)
    assert rows[0]["record"]["content"] == second
    assert rows[0]["said_before"] == [first]
    other = next(row for row in rows if row["record"]["content"] == first)
    assert other["said_after"] == [second]


async def test_message_after_one_with_its_own_subject_continues_nothing(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await tell(rem, sql, 3, "Edgar Frade scratched my door.", "Lena works at the bakery on Torvet.", *_NOISE[3:])
    rows = await answer(rem, "Where does Lena work?")
    assert rows[0]["record"]["content"] == "Lena works at the bakery on Torvet."
    assert not {"said_before", "said_after"} & rows[0].keys()


async def test_somebody_is_found_by_the_name_if_the_question_has_the_role(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await tell(rem, sql, 4, "We rehearse on Thursdays. The conductor is Ilse Baumgart.", *_NOISE[:4])
    await tell(rem, sql, 2, *_NOISE[4:9], "Ilse broke her wrist on the stairs.", *_NOISE[9:])
    rows = await answer(rem, "What happened to the conductor?")
    assert "Ilse broke her wrist on the stairs." in [row["record"]["content"] for row in rows[:2]]


async def test_newest_message_comes_first_if_the_question_asks_for_now(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await tell(rem, sql, 6, "Nan is staying at aunt Gitte's till Friday.", *_NOISE[:6])
    await tell(rem, sql, 1, "Nan is back home, Gitte got her a red button.", *_NOISE[6:])
    assert "back home" in (await answer(rem, "Where is Nan now?"))[0]["record"]["content"]


async def test_question_for_a_former_value_is_not_answered_by_the_new_one(
    rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await tell(rem, sql, 5, *_NOISE[:2], "The gate code is 4471.")
    await tell(rem, sql, 1, *_NOISE[2:4], "They changed the gate code to 9921.")
    rows = await answer(rem, "What was the gate code originally?")
    assert rows[0]["record"]["content"] == "The gate code is 4471."
    assert "superseded_by" not in rows[0]
