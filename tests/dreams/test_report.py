"""A run says in words what it has learnt and what it has dropped."""

from __future__ import annotations

from datetime import timedelta

import orjson

from rem.app import Rem
from rem.db.store import Store
from rem.dreams.history import list_statement_page
from rem.dreams.report import MAX_LINE_CHARS, MAX_LINES
from rem.models import Resource
from tests.dreams.sample_sessions import MARCH, list_moments, run_dreams, store_session
from tests.rem_command import output
from tests.rem_command import rem as run_rem

_ALICE = ("--user", "alice@example.com")


async def test_report_says_what_was_learnt_and_dropped(rem: Rem, alice: Store) -> None:
    await store_session(
        alice,
        "one",
        "user: I live in Svendborg with my sister Ewa Nowak.",
        "user: Where is the key of the boat?",
        "user: Who has it?",
        "user: Search my notes for the key.",
    )
    report = await rem.dreamer().dream(alice.scope)
    assert report.learnt[:2] == [
        "You: lives in Svendborg",
        "Ewa Nowak: I live in Svendborg with my sister Ewa Nowak.",
    ]
    assert "I live in Svendborg with my sister Ewa Nowak. (14 Mar 2026)" in report.learnt
    assert report.dropped == ["2 questions and 1 command are no memories"]
    await store_session(alice, "two", "user: We moved to Aarhus last week.", at=MARCH + timedelta(days=30))
    report = await rem.dreamer().dream(alice.scope)
    assert "You: lives in Aarhus" in report.learnt
    assert report.dropped == ["You: lives in Svendborg (now: lives in Aarhus)"]
    assert (await rem.dreamer().dream(alice.scope)).dropped == []


async def test_old_fact_stays_on_record(rem: Rem, alice: Store) -> None:
    await store_session(alice, "one", "user: I live in Svendborg.")
    await rem.dreamer().dream(alice.scope)
    await store_session(alice, "two", "user: We moved to Aarhus last week.", at=MARCH + timedelta(days=30))
    await rem.dreamer().dream(alice.scope)
    about = [one for one in (await list_statement_page(alice)).statements if one.name == "metadata.profile.about"]
    assert [(one.state, one.value) for one in about] == [
        ("live", ["lives in Aarhus"]),
        ("ended", ["lives in Svendborg"]),
    ]
    assert about[1].valid_to is not None


async def test_report_tells_what_has_no_statement_any_more(rem: Rem, alice: Store) -> None:
    await store_session(alice, "one", "user: The mainsail of the Albatross is torn.")
    await run_dreams(rem, alice, "moments")
    (moment,) = await list_moments(alice)
    await alice.delete(moment)
    report = await run_dreams(rem, alice, "moments", rescan=True)
    assert report.dropped == ["1 left out, because you deleted or changed it"]


async def test_report_is_bounded(rem: Rem, alice: Store) -> None:
    for number in range(MAX_LINES + 5):
        thing = f"thing{number} " * 40
        await store_session(
            alice, f"session {number}", f"user: The {thing} is broken.", at=MARCH + timedelta(days=number)
        )
    report = await run_dreams(rem, alice, "moments")
    assert len(report.learnt) == MAX_LINES + 1
    assert report.learnt[-1] == f"and {len(await list_moments(alice)) - MAX_LINES} more"
    assert all(len(line) <= MAX_LINE_CHARS for line in report.learnt)


async def test_command_prints_the_report_within_80_columns(alice: Store, dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "COLUMNS": "80"}
    await store_session(
        alice,
        "one",
        "user: I live in Svendborg, and my sister Ewa Nowak <ewa@nowak.pl> keeps the spare key of the boat for us.",
        "user: What is new?",
    )
    shown = output("dreaming", "full", *_ALICE, settings=settings)
    assert "Learnt:\n  - You: lives in Svendborg\n" in shown
    assert "Dropped:\n  - 1 question is no memory\n" in shown
    assert max(map(len, shown.splitlines())) <= 80
    await store_session(alice, "two", "user: The mainsail of the Albatross is torn.", at=MARCH + timedelta(days=1))
    (report,) = orjson.loads(output("dreaming", "full", "--json", *_ALICE, settings=settings))
    assert report["learnt"] == ["The mainsail of the Albatross is torn. (15 Mar 2026)"]
    assert report["dropped"] == []


async def test_statements_include_edges_to_the_row_and_hide_links(rem: Rem, alice: Store, dsn: str) -> None:
    session_id = await store_session(alice, "one", "user: My sister Ewa Nowak keeps the spare key of the boat.")
    for number in range(3):
        content = f"The sailing boat Albatross needs a new mainsail, says note {number}."
        await alice.upsert(Resource(name=f"note {number}", content=content))
    await rem.dreamer().dream(alice.scope)
    about_ewa = (await list_statement_page(alice, "ewa-nowak")).statements
    assert ("mentions ontologies/ewa-nowak", str(session_id)) in [(one.name, str(one.entity_id)) for one in about_ewa]
    every, without = await list_statement_page(alice), await list_statement_page(alice, with_links=False, limit=1)
    links = [one for one in every.statements if one.dream == "affinity"]
    assert links
    assert every.total == len(every.statements)
    assert (without.hidden_links, without.total) == (len(links), every.total - len(links))
    assert len(without.statements) == 1
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    done = run_rem("dreaming", "statements", "--limit", "1", *_ALICE, settings=settings)
    assert f"{without.total - 1} more statement" in done.stderr
    assert "between related texts: use --links" in done.stderr
    assert "related_to" not in output("dreaming", "statements", *_ALICE, settings=settings)
    assert "related_to" in output("dreaming", "statements", "--links", *_ALICE, settings=settings)
