"""SEARCH puts texts with the identifiers and quoted phrases of the query first."""

from __future__ import annotations

from rem import Message, Rem, Resource, Session
from rem.db.store import Store
from rem.query.tree import Search
from tests.cases import cases

ALICE = "alice@example.com"
SUBJECTS = ("the printer on the second floor", "the login page", "the payroll export", "a new laptop for Marta")
FILLER = (
    "We talked about the garden, the weather in Aarhus and the plan for the summer party, which is still open. " * 12
)


async def _first_text(rem: Rem, query: str, table: str | None = None) -> str:
    """Return the passage of the first hit."""
    result = await rem.for_user(ALICE).query(Search(query, table=table))
    return str(result.list_rows()[0]["passage"]["text"])


async def test_ticket_numbers_rank_first(rem: Rem, alice: Store) -> None:
    numbers = [1500 + 7 * number for number in range(300)]
    await alice.upsert_many(
        Resource(
            name=f"Note {number}", content=f"Ticket {number}: {SUBJECTS[number % 4]} is still waiting for an answer."
        )
        for number in numbers
    )
    await rem.for_user(ALICE).index()
    for number in numbers[::15]:
        for query in (f"Ticket {number}", f"What was in ticket {number}?"):
            assert (await _first_text(rem, query)).startswith(f"Ticket {number}:"), query


@cases(
    ("query", "expected"),
    [
        ("order AB-2291", "The order AB-2291 left the warehouse."),
        ("Where is AB 2291?", "The order AB-2291 left the warehouse."),
        ("2291", "The order AB-2291 left the warehouse."),
        ("ab-22917", "The order AB-22917 was refunded."),
        ("What changed in v2.14.3?", "We released v2.14.3 with a faster importer."),
        ("2.14.3", "We released v2.14.3 with a faster importer."),
        ("v2.14", "We released v2.14 with a new logo."),
        ("When does SK 1427 leave?", "Her flight SK1427 was delayed by two hours."),
        ("SK 1472", "His flight SK 1472 was on time."),
        ("whose number is 20 30 40 50?", "The plumber answers on +45 2030 4050 in the morning."),
        ("+45 20 30 40 51", "The dentist answers on 20 30 40 51 in the morning."),
        ("anna.berg@example.com", "The landlord writes from anna.berg@example.com."),
        ("report_final2.pdf", "The figures are in report_final2.pdf."),
        ("heliotrope-91", "The code word of the boat is heliotrope-91."),
        ("gate 22", "We meet at gate 22."),
        ('who said "blue hour"?', "Jonas called the photo Blue Hour."),
    ],
)
async def test_identifier_ranks_first_in_all_forms(rem: Rem, alice: Store, query: str, expected: str) -> None:
    texts = (
        "The order AB-2291 left the warehouse.",
        "The order AB-22917 was refunded.",
        "The order AC-2292 left the warehouse.",
        "We released v2.14.3 with a faster importer.",
        "We released v2.14 with a new logo.",
        "We released v2.143 and v3.14.2 by mistake.",
        "Her flight SK1427 was delayed by two hours.",
        "His flight SK 1472 was on time.",
        "The plumber answers on +45 2030 4050 in the morning.",
        "The dentist answers on 20 30 40 51 in the morning.",
        "The landlord writes from anna.berg@example.com.",
        "The caretaker writes from berg.anna@example.com.",
        "The figures are in report_final2.pdf.",
        "The figures are in report_final.pdf.",
        "The code word of the boat is heliotrope-91.",
        "The code word of the car is heliotrope-19.",
        "We meet at gate 22.",
        "We meet at gate 23, 22 people in all.",
        "Jonas called the photo Blue Hour.",
        "Who said that the sea is blue at this hour?",
    )
    await alice.upsert_many(Resource(name=f"Text {number}", content=text) for number, text in enumerate(texts))
    assert await _first_text(rem, query) == expected


async def test_identifier_in_long_text_is_found_and_its_passage_is_shown(rem: Rem, alice: Store) -> None:
    await alice.upsert_many(
        Resource(name=f"Text {number}", content=f"{FILLER}\nOrder AB-{number} is here.\n{FILLER}")
        for number in range(300, 320)
    )
    assert "AB-307" in await _first_text(rem, "What is AB-307?")


async def test_identifier_in_message_ranks_above_replies(rem: Rem, alice: Store) -> None:
    session = await alice.upsert(Session(name="Shop"))
    texts = [
        text for number in range(300, 320) for text in (f"Order AB-{number} did not arrive.", "Order it again, please.")
    ]
    await alice.upsert_many(
        Message(session_id=session.id, message_index=index, role="user", content=text)
        for index, text in enumerate(texts)
    )
    for table in (None, "messages"):
        assert "AB-307" in await _first_text(rem, "What about order AB-307?", table)
    found = await rem.for_user(ALICE).query('SEARCH "AB-307" FROM sessions')
    assert "AB-307" in found.list_rows()[0]["passage"]["text"]


async def test_title_with_identifier_ranks_first(rem: Rem, alice: Store) -> None:
    await alice.upsert_many(
        Resource(name=f"Ticket {number}", content=f"It is about {SUBJECTS[number % 4]}.")
        for number in range(1700, 1740)
    )
    result = await rem.for_user(ALICE).query('SEARCH "ticket 1721" LIMIT 1')
    assert result.list_rows()[0]["record"]["name"] == "Ticket 1721"


async def test_exact_match_respects_filters(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Old", content="Ticket 1721 is closed.", metadata={"state": "closed"}))
    await alice.upsert(Resource(name="New", content="Another ticket is open.", metadata={"state": "open"}))
    await rem.for_user("bob@example.com").store.upsert(Resource(name="Secret", content="Ticket 4711 belongs to Bob."))
    result = await rem.for_user(ALICE).query("SEARCH \"ticket 1721\" WHERE name = 'New'")
    assert [row["key"] for row in result.list_rows()] == ["new"]
    result = await rem.for_user(ALICE).query('SEARCH "ticket 4711"')
    assert all("4711" not in row["passage"]["text"] for row in result.list_rows())


async def test_score_stays_below_one(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Note", content="Ticket 1721 is closed."))
    result = await rem.for_user(ALICE).query('SEARCH "Ticket 1721 is closed."')
    assert 0 < result.list_rows()[0]["score"] <= 1


async def test_item_of_many_texts_is_not_compared_but_a_phrase_of_common_words_is(rem: Rem, alice: Store) -> None:
    await alice.upsert_many(
        Resource(name=f"Note {number}", content=f"PRJ-7, week {number}: the {SUBJECTS[number % 4]} of the team.")
        for number in range(400)
    )
    await alice.upsert(Resource(name="Toast", content="PRJ-7: Marta said that the team of the payroll is the best."))
    await rem.for_user(ALICE).index()
    common = await rem.for_user(ALICE).query(Search("PRJ-7"))
    assert {step.rows for step in common.steps if step.name == "exact"} == {0}
    assert common.list_rows()[0]["passage"]["text"].startswith("PRJ-7")
    assert (await _first_text(rem, 'PRJ-7 "the team of the payroll"')).startswith("PRJ-7: Marta")


async def test_phrase_is_found_deep_in_a_long_text_and_across_its_passages(rem: Rem, alice: Store) -> None:
    # Wherever the passages are cut, one of the phrases begins in one and ends in the next.
    filler = [f"Paragraph {number} is about the weather in the hills of that region." for number in range(400)]
    sentences = [f"{text} The silver kettle number {number} whistled." for number, text in enumerate(filler)]
    await alice.upsert(Resource(name="Long", content=" ".join(sentences)))
    await alice.upsert(Resource(name="Other", content="A kettle of silver, number 390, whistled for long."))
    for number in (0, 5, 6, 7, 8, 390, 399):
        result = await rem.for_user(ALICE).query(f"SEARCH \"'silver kettle number {number}'\"")
        first = result.list_rows()[0]
        assert first["record"]["name"] == "Long"
        text, passage = " ".join(sentences), first["passage"]
        place = text.index(f"silver kettle number {number} ")
        assert passage["start"] - 200 <= place <= passage["end"] + 200
