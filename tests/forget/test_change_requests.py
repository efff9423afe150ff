"""A change is shown first, and done once, for exactly the rows that were shown, after its owner has confirmed it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest

from rem.app import Rem
from rem.approvals.approvals import MAX_PENDING
from rem.db.store import Store
from rem.errors import ConflictError, InvalidInputError, NotFoundError, RemError
from rem.forget.change_requests import MAX_ROWS, ChangeReport, replace_sentences
from rem.models import Approval, Message, Moment, Resource, Role, ToolGap
from rem.sessions.message import REASONING, NewMessage
from rem.tools.consent import describe_question
from tests.forget.text_traces import find_traces

_ALICE, _BOB = "alice@example.com", "bob@example.com"
_SECRET = "heliotrope-91"
_HELP = 'Say "Forget my code word." to make me forget a word, a person or a note.'


async def say(rem: Rem, *texts: str, role: Role = Role.USER, session_id: UUID | None = None) -> UUID:
    """Store messages of Alice, and return their session."""
    memory = rem.for_user(_ALICE).sessions
    session_id = session_id or (await memory.create_session()).id
    await memory.append(session_id, [NewMessage(role=role, content=text) for text in texts])
    return session_id


async def list_texts(store: Store) -> set[str]:
    notes, messages = await store.find(Resource), await store.find(Message)
    return {note.content for note in notes} | {message.content for message in messages}


async def test_forgetting_shows_the_rows_first_and_erases_only_them(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    session_id = await say(rem, f"My code word for the boat is {_SECRET}.", "The boat needs a new sail.")
    await say(rem, f"Your code word is {_SECRET}.", role=Role.ASSISTANT, session_id=session_id)
    await say(rem, f"Is {_SECRET} my code word?", session_id=session_id)
    await say(rem, _HELP, role=Role.ASSISTANT, session_id=session_id)
    await alice.upsert(Resource(name="Boat", content=f"Code words: {_SECRET} for the boat."))
    await say(rem, "Forget my code word.", session_id=session_id)
    request = await rem.for_user(_ALICE).changes.request_forget("my code word", session_id=session_id)
    assert [row.table for row in request.rows] == ["resources", "messages"]
    assert (request.change.total, request.change.is_exact) == (2, True)
    assert f"`session-{session_id}-msg-0`: “My code word for the boat is {_SECRET}.”" in request.preview
    assert len(await list_texts(alice)) == 7
    report = await rem.for_user(_ALICE).changes.confirm(request.code, by="test")
    # REM's answers and the questions that repeat it go as well, and are not memories that one chooses.
    assert report.erased == {"resources": 1, "messages": 1}
    assert await list_texts(alice) == {"The boat needs a new sail.", _HELP}
    assert await find_traces(sql, _SECRET) == {}


async def test_answers_are_listed_if_nothing_else_has_the_words(rem: Rem, alice: Store) -> None:
    await say(rem, "The harbour master is called Ines.", role=Role.ASSISTANT)
    request = await rem.for_user(_ALICE).changes.request_forget("harbour master")
    assert "(REM's answer)" in request.preview
    await rem.for_user(_ALICE).changes.confirm(request.code, by="test")
    assert await list_texts(alice) == set()


async def test_reasoning_that_repeats_a_forgotten_text_is_erased_in_any_session(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await say(rem, f"My code word for the boat is {_SECRET}.")
    other = await say(rem, "Good morning.")
    thoughts = [f"The code word for their boat was {_SECRET}.", "Nothing is to be done."]
    messages = [NewMessage(role=Role.TOOL, tool_name=REASONING, content=thought) for thought in thoughts]
    await rem.for_user(_ALICE).sessions.append(other, messages)
    request = await rem.for_user(_ALICE).changes.request_forget("my code word")
    await rem.for_user(_ALICE).changes.confirm(request.code, by="test")
    assert await list_texts(alice) == {"Good morning.", "Nothing is to be done."}
    assert await find_traces(sql, _SECRET) == {}


async def test_a_late_confirmation_erases_no_other_answers(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    session_id = await say(rem, f"My code word for the boat is {_SECRET}.", "Forget my code word.")
    request = await rem.for_user(_ALICE).changes.request_forget("my code word", session_id=session_id)
    await say(rem, "Wait, when does the train leave?", session_id=session_id)
    # The answers to two messages at once are stored in any order.
    shown = f"{request.preview}\n\n{describe_question(request.approval, len(request.rows))}"
    await say(rem, "The train leaves at 09:14.", shown, role=Role.ASSISTANT, session_id=session_id)
    await say(rem, "Thanks.", session_id=session_id)
    await say(rem, "You are welcome.", role=Role.ASSISTANT, session_id=session_id)
    await rem.for_user(_ALICE).changes.confirm(request.code, by="test")
    assert await list_texts(alice) == {
        "Wait, when does the train leave?",
        "The train leaves at 09:14.",
        "Thanks.",
        "You are welcome.",
    }
    assert await find_traces(sql, _SECRET) == {}


async def test_gaps_and_other_requests_do_not_keep_a_forgotten_text(
    rem: Rem, alice: Store, bob: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    said = f"My code word for the boat is {_SECRET}."
    session_id, other_id = await say(rem, said), await say(rem, "The boat needs a new sail.", "Marta likes tea.")
    for tool, task, session in [
        ("mail", f"Mail to Marta: {_SECRET}", session_id),
        ("fax", f"Fax this: {said}", None),
        ("call", "Call the harbour.", other_id),
    ]:
        await alice.upsert(ToolGap(missing_tools=[tool], attempted_task=task, session_id=session))
    await bob.upsert(ToolGap(missing_tools=["call"], attempted_task="Call Bob.", session_id=session_id))
    changes = rem.for_user(_ALICE).changes
    correction = await changes.request_correction("sail", f"The sail is called {_SECRET}.")
    same, tea = await changes.request_forget("code word"), await changes.request_forget("tea")
    request = await changes.request_forget("code word")
    await changes.confirm(request.code, by="test")
    assert await find_traces(sql, _SECRET) == {}
    gaps = {gap.missing_tools[0]: gap.attempted_task for gap in await alice.find(ToolGap)}
    assert gaps == {"mail": "(forgotten)", "fax": "(forgotten)", "call": "Call the harbour."}
    assert [gap.attempted_task for gap in await bob.find(ToolGap)] == ["Call Bob."]
    for dropped in (correction, same):
        with pytest.raises(NotFoundError):
            await changes.confirm(dropped.code, by="test")
    assert (await changes.confirm(tea.code, by="test")).erased == {"messages": 1}


async def test_long_texts_are_searched_to_their_end(rem: Rem, alice: Store) -> None:
    words = " ".join(f"w{number}x" for number in range(250_000))
    await alice.upsert(Resource(name="Numbers", content=words))
    await alice.upsert(Resource(name="Book", content=f"{words} Marta likes tea."))
    await say(rem, "Marta moved to Leeds.")
    request = await rem.for_user(_ALICE).changes.request_forget("Marta")
    assert {row.key for row in request.rows if row.table == "resources"} == {"book"}
    assert request.change.total == 2
    request = await rem.for_user(_ALICE).changes.request_correction("Marta", "Marta moved to Hull.")
    assert [row.text for row in request.rows] == ["Marta moved to Leeds."]


async def test_a_code_works_once_and_for_its_owner_only(rem: Rem, alice: Store, bob: Store) -> None:
    await say(rem, "Marta likes tea.")
    await bob.upsert(Resource(name="Marta", content="Marta likes tea."))
    request = await rem.for_user(_ALICE).changes.request_forget("what I said about Marta")
    with pytest.raises(NotFoundError, match="Nothing waits"):
        await rem.for_user(_BOB).changes.confirm(request.code, by="test")
    with pytest.raises(NotFoundError):
        await rem.for_user(_ALICE, tenant="another").changes.confirm(request.code, by="test")
    assert len(await list_texts(alice)) == 1
    await rem.for_user(_ALICE).changes.confirm(request.code.upper(), by="test")
    assert (await list_texts(alice), await list_texts(bob)) == (set(), {"Marta likes tea."})
    with pytest.raises(NotFoundError, match="Nothing waits"):
        await rem.for_user(_ALICE).changes.confirm(request.code, by="test")


async def test_concurrent_confirmations_carry_a_change_out_once(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Flight", content="My flight is SK1425."))
    request = await rem.for_user(_ALICE).changes.request_correction("my flight", "My flight is SK1427.")

    async def confirm() -> ChangeReport | RemError:
        try:
            return await rem.for_user(_ALICE).changes.confirm(request.code, by="test")
        except RemError as error:
            return error

    results = await asyncio.gather(*(confirm() for _ in range(4)))
    refused = [result for result in results if not isinstance(result, ChangeReport)]
    assert len(refused) == 3
    assert all(isinstance(error, NotFoundError | ConflictError) for error in refused)
    (note,) = await alice.find(Resource)
    assert len(note.metadata["corrections"]) == 1


async def test_nothing_is_erased_if_a_row_has_changed_since(rem: Rem, alice: Store) -> None:
    await say(rem, "Marta likes tea.")
    note = await alice.upsert(Resource(name="Marta", content="Marta is a baker."))
    request = await rem.for_user(_ALICE).changes.request_forget("Marta")
    await alice.upsert(note.model_copy(update={"content": "Marta is my sister."}))
    with pytest.raises(ConflictError, match="have changed"):
        await rem.for_user(_ALICE).changes.confirm(request.code, by="test")
    assert await list_texts(alice) == {"Marta likes tea.", "Marta is my sister."}


async def test_rejected_and_expired_requests_change_nothing(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await say(rem, "Marta likes tea.")
    rejected = await rem.for_user(_ALICE).changes.request_forget("Marta")
    await rem.for_user(_ALICE).changes.reject(rejected.code, by="test")
    expired = await rem.for_user(_ALICE).changes.request_forget("Marta")
    await sql.execute("UPDATE rem.approvals SET decide_by = now() - interval '1 s' WHERE status = 'pending'")
    for code in (rejected.code, expired.code, "000000"):
        with pytest.raises(NotFoundError, match="15 minutes"):
            await rem.for_user(_ALICE).changes.confirm(code, by="test")
    assert await list_texts(alice) == {"Marta likes tea."}
    await rem.sweep()
    assert "Marta" not in str(await sql.fetch("SELECT * FROM rem.approvals"))


async def test_the_user_can_choose_some_of_the_rows(rem: Rem, alice: Store) -> None:
    await say(rem, "Marta likes tea.", "Marta moved to Leeds.", "Marta has a dog.")
    request = await rem.for_user(_ALICE).changes.request_forget("Marta")
    with pytest.raises(InvalidInputError, match="1 to 3"):
        await rem.for_user(_ALICE).changes.confirm(request.code, by="test", numbers=[1, 4])
    kept = request.rows[1].text
    report = await rem.for_user(_ALICE).changes.confirm(request.code, by="test", numbers=[1, 3])
    assert report.erased == {"messages": 2}
    assert await list_texts(alice) == {kept}


async def test_ten_thousand_rows_are_shown_in_pages(rem: Rem, alice: Store) -> None:
    notes = [Resource(name=f"Note {number}", content=f"Marta was here {number} times.") for number in range(10_000)]
    await alice.upsert_many(notes)
    request = await rem.for_user(_ALICE).changes.request_forget("Marta")
    assert (len(request.rows), request.change.total) == (MAX_ROWS, 10_000)
    assert f"These are {MAX_ROWS} of 10000" in request.preview
    assert (await rem.for_user(_ALICE).changes.confirm(request.code, by="test")).erased == {"resources": MAX_ROWS}
    assert await alice.count(Resource) == 10_000 - MAX_ROWS


async def test_a_topic_needs_words_and_rows(rem: Rem) -> None:
    for topic in ("everything", "what I said", "?!", "the"):
        with pytest.raises(InvalidInputError, match="Say what it is about"):
            await rem.for_user(_ALICE).changes.request_forget(topic)
    with pytest.raises(NotFoundError, match="nothing about"):
        await rem.for_user(_ALICE).changes.request_forget("Marta")


async def test_a_row_is_found_by_its_key(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Parking spot", content="B12"))
    request = await rem.for_user(_ALICE).changes.request_forget("parking-spot")
    assert [row.key for row in request.rows] == ["parking-spot"]


async def test_nearest_rows_are_offered_as_such(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Pet", content="Our puppy is called Rex and barks at the postman."))
    request = await rem.for_user(_ALICE).changes.request_forget("my dog's name")
    assert ([row.key for row in request.rows], request.change.is_exact) == (["pet"], False)
    assert request.preview.startswith("No text has these words.")


async def test_pending_requests_are_limited(rem: Rem) -> None:
    await say(rem, "Marta likes tea.")
    changes = rem.for_user(_ALICE).changes
    for _ in range(MAX_PENDING):
        await changes.request_forget("Marta")
    with pytest.raises(ConflictError, match="already wait"):
        await changes.request_forget("Marta")


async def test_a_correction_keeps_messages_and_stores_what_replaces_them(rem: Rem, alice: Store) -> None:
    await say(rem, "My flight is SK1425.", "What is my flight?")
    (message,) = [row for row in await alice.find(Message) if "SK1425" in row.content]
    request = await rem.for_user(_ALICE).changes.request_correction("my flight", "My flight is SK1427.")
    assert [row.text for row in request.rows] == ["My flight is SK1425."]
    assert "(stays, and is marked as replaced)" in request.preview
    report = await rem.for_user(_ALICE).changes.confirm(request.code, by="test")
    (note,) = await alice.find(Resource)
    assert (note.content, note.key) == ("My flight is SK1427.", report.key)
    assert note.metadata["supersedes"] == [f"messages/{message.id}"]
    assert (report.changed, report.replaced) == (0, 1)
    assert len(await alice.find(Message)) == 2


@pytest.mark.parametrize(
    ("topic", "new", "replaced", "kept"),
    [
        ("my flight", "My flight is SK1427.", "My flight is SK1425.", "Ana has booked my flight at the counter."),
        (
            "spare key",
            "Ines has the spare key of the boat.",
            "Tom has the spare key of the boat.",
            "A spare key costs a lot.",
        ),
        ("Marta", "Marta lives in Hull.", "Marta lives in Leeds.", "Marta plays the oboe."),
        ("dentist", "The dentist is on Friday.", "The dentist is on Monday.", "The dentist has a fish tank."),
    ],
)
async def test_a_correction_replaces_only_what_it_says_differently(
    rem: Rem, topic: str, new: str, replaced: str, kept: str
) -> None:
    await say(rem, replaced, kept)
    request = await rem.for_user(_ALICE).changes.request_correction(topic, new)
    assert ([row.text for row in request.rows], request.change.total) == ([replaced], 1)


async def test_a_corrected_message_is_marked_in_answers(rem: Rem, alice: Store) -> None:
    await say(rem, "The harbour office keeps the spare key of the boat.")
    (old,) = await alice.find(Message)
    request = await rem.for_user(_ALICE).changes.request_correction(
        "spare key", "Ines has the spare key of the boat at home."
    )
    report = await rem.for_user(_ALICE).changes.confirm(request.code, by="test")
    rows = (await rem.for_user(_ALICE).find("Where is the spare key of the boat?")).list_rows()
    assert [(row["key"], row.get("superseded_by")) for row in rows] == [(report.key, None), (old.key, report.key)]


async def test_a_correction_keeps_a_note_with_other_details(rem: Rem, alice: Store) -> None:
    note = await rem.for_user(_ALICE).remember("My flight is LH 831 on Monday 14:20 from Hamburg.")
    request = await rem.for_user(_ALICE).changes.request_correction("the flight", "the flight is on Tuesday")
    assert "(stays, and is marked as replaced)" in request.preview
    report = await rem.for_user(_ALICE).changes.confirm(request.code, by="test")
    assert (report.changed, report.replaced) == (0, 1)
    for question, first, other in (
        ("What is my flight number?", note.key, report.key),
        ("When is my flight?", report.key, note.key),
    ):
        rows = (await rem.for_user(_ALICE).find(question)).list_rows()
        superseded_by = report.key if other == note.key else None
        assert [(row["key"], row.get("superseded_by")) for row in rows] == [(first, None), (other, superseded_by)]


async def test_a_correction_changes_notes_and_keeps_their_old_text(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Trip", content="The hotel is booked. My flight is SK1425. Mia comes along."))
    await alice.upsert(Moment(name="Booking", summary="Alice's flight is SK1425.", starts_timestamp=datetime.now(UTC)))
    await alice.upsert(Resource(name="Scan", content="Flight SK1425", metadata={"file_id": str(UUID(int=1))}))
    request = await rem.for_user(_ALICE).changes.request_correction("flight", "My flight is SK1427.")
    report = await rem.for_user(_ALICE).changes.confirm(request.code, by="test")
    (trip,) = await alice.lookup("trip")
    (booking,) = await alice.lookup("booking")
    (scan,) = await alice.lookup("scan")
    assert isinstance(trip, Resource)
    assert trip.content == "The hotel is booked. My flight is SK1427. Mia comes along."
    assert trip.metadata["corrections"][0]["was"].startswith("The hotel is booked. My flight is SK1425.")
    assert getattr(booking, "summary") == "My flight is SK1427."  # noqa: B009  # a moment, seen as an entity
    assert getattr(scan, "content") == "Flight SK1425"  # noqa: B009
    assert (report.changed, report.replaced) == (2, 1)


async def test_requests_are_stored_as_approvals_that_expire(rem: Rem, alice: Store) -> None:
    await say(rem, "Marta likes tea.")
    request = await rem.for_user(_ALICE).changes.request_forget("Marta")
    (approval,) = await alice.find(Approval)
    assert (approval.status, approval.risk_level, approval.timeout_seconds) == ("pending", "irreversible", 900)
    assert approval.parameters == {"what": "Marta"}
    assert approval.decide_by is not None
    await rem.for_user(_ALICE).changes.confirm(request.code, by="Alice in a test")
    (approval,) = await alice.find(Approval)
    assert (approval.status, approval.decided_by, approval.execution) == ("approved", "Alice in a test", "done")
    assert (approval.parameters, approval.proposal) == ({}, {})
    assert approval.expires_at is not None


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("My flight is SK1425.", "New."),
        ("It rains. My flight is SK1425. We go.", "It rains. New. We go."),
        ("My flight is SK1425. The flight is late. We go.", "New. We go."),
        ("", "New."),
    ],
)
def test_replace_sentences(text: str, becomes: str) -> None:
    assert replace_sentences(text, "my flight", "New.") == becomes
