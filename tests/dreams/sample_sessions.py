"""Sessions for tests of dreams, with the same ids in every database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import asyncpg

from rem.app import Rem
from rem.db.store import Store
from rem.dreams.dreamer import DreamReport
from rem.models import Message, Moment, Role, Session

MARCH = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)
_ROLES = ("user", "assistant", "system", "tool")
_TOPICS = (
    ("We migrate the billing database to Postgres 17 in April.", "The cutover of the ledger tables takes 40 minutes."),
    ("My daughter Mia starts violin lessons with Mr. Tanaka.", "The violin is a half size from the shop in Leith."),
    ("The kitchen sink leaks under the cupboard again.", "The plumber charged 120 pounds for the new gasket."),
    ("I am training for the Lisbon marathon in October.", "My long run this Sunday was 28 kilometres in the rain."),
    ("Our sailing boat Albatross needs a new mainsail.", "The sailmaker in Cowes quoted 3,400 euros for Dacron."),
    ("The sourdough starter died while we were on holiday.", "I feed the rye starter twice with spelt flour now."),
    ("Kubernetes evicts the checkout pods every night.", "The memory limit of the checkout service is 512 MiB."),
    ("Grandma's hip operation is at St. Mary's hospital.", "The surgeon expects six weeks of physiotherapy."),
    ("We adopted a greyhound called Biscuit from the shelter.", "Biscuit is afraid of the vacuum cleaner."),
    ("I bought a second-hand Leica with a 35 mm lens.", "The shutter of the Leica sticks at one thirtieth."),
    ("The tomatoes in the greenhouse have blight.", "I ordered copper spray and resistant Crimson Crush seeds."),
    ("My visa for Japan arrived by courier.", "The flight to Osaka leaves Frankfurt on the ninth."),
    ("The accountant found a mistake in the VAT return.", "We owe the tax office 870 euros for the third quarter."),
    ("I am reading Middlemarch with the book club.", "Casaubon's key to all mythologies drives me up the wall."),
    ("The guitar amplifier hums when the fridge is on.", "A ground loop isolator from the music shop fixed it."),
    ("Our quarterly review moved to the Hamburg office.", "Priya presents the churn numbers of the Nordic region."),
    ("The observatory allotted us two nights for the comet.", "We image the comet's tail with the narrowband filter."),
    ("My bicycle's bottom bracket creaks on climbs.", "The mechanic replaced the bearings and the chain."),
    ("The choir sings the Fauré Requiem at Easter.", "I have the baritone solo in the Libera me."),
    ("The landlord raises the rent by eight percent.", "The tenants' association says the notice is void."),
    ("We insulate the attic with wood fibre boards.", "The energy adviser found a thermal bridge at the gable."),
    ("I failed the Rust interview at the robotics startup.", "They asked about pinning and self-referential futures."),
    ("The beehive swarmed into the neighbour's pear tree.", "I caught the queen with a cardboard box and a brush."),
    ("Our podcast about lighthouses reached 1,000 listeners.", "The next episode is on the Fastnet rock keepers."),
    ("My brother sells his bakery in Graz.", "The buyer keeps the wood oven and both apprentices."),
)


def make_session_id(name: str) -> UUID:
    """Return the id of a session by its name, the same in every test."""
    return uuid5(NAMESPACE_URL, f"session of a test: {name}")


def _message(name: str, index: int, role: str, text: str, at: datetime, speaker: str | None) -> Message:
    return Message(
        id=uuid5(NAMESPACE_URL, f"message of a test: {name} {index}"),
        session_id=make_session_id(name),
        message_index=index,
        role=Role(role),
        content=text,
        tool_call_id="call" if role == "tool" else None,
        metadata={"speaker": speaker} if speaker else {},
        created_at=at,
    )


async def store_session(
    store: Store,
    name: str,
    *lines: str,
    at: datetime = MARCH,
    step: timedelta = timedelta(minutes=1),
    first: int = 0,
) -> UUID:
    """Store a session with lines such as "user: …", "assistant: …", "tool: …" or "Sarah Chen: …", a minute apart."""
    if first == 0:
        await store.upsert(Session(id=make_session_id(name), metadata={"test": name}))
    messages = []
    for offset, line in enumerate(lines):
        author, _, text = line.partition(": ")
        role, speaker = (author, None) if author in _ROLES else ("user", author)
        messages.append(_message(name, first + offset, role, text, at + offset * step, speaker))
    await store.upsert_many(messages)
    return make_session_id(name)


async def store_fifty_sessions(store: Store) -> list[UUID]:
    """Store fifty sessions, two on each of 25 topics, each with its own marker word and small talk around it.

    Every tenth session repeats another word for word, and every tenth is nothing but small talk.
    """
    ids = []
    for number in range(50):
        first, second = _TOPICS[number % 25]
        at = MARCH + timedelta(days=number)
        texts = (
            (first, second)
            if number < 25
            else (f"A month later it is as I said: {second}", "Nothing else is new there.")
        )
        lines = [
            "user: Good morning!",
            "assistant: Hello! How can I help you today?",
            f"user: {texts[0]} The code word is {make_marker(number)}.",
            "assistant: Got it, I will remember that.",
            f"user: {texts[1]}",
            "assistant: Thanks for letting me know!",
        ]
        if number % 10 == 7:
            lines = [
                "user: Good morning!",
                "assistant: Hello! How can I help you today?",
                "user: Just saying hi, thanks!",
            ]
        if number % 10 == 9:
            lines = [
                "user: I water the ficus on Fridays.",
                "assistant: Good to know that the ficus gets its water.",
            ]
        ids.append(await store_session(store, f"number {number}", *lines, at=at))
    return ids


def make_marker(number: int) -> str:
    """Return a word that only one of the fifty sessions has."""
    return f"zyx{number:02d}quark"


async def run_dreams(rem: Rem, store: Store, *names: str, rescan: bool = False) -> DreamReport:
    """Run dreams for the owner of a store, without a model."""
    return await rem.dreamer().dream(store.scope, names or ("moments",), rescan=rescan)


async def list_moments(store: Store) -> list[Moment]:
    """Return the owner's own moments in the order of time."""
    stored = await store.find(Moment, order_by="starts_timestamp")
    return [moment for moment in stored if moment.user_id == store.scope.user_id]


async def fetch_moments_content(sql: asyncpg.Connection[asyncpg.Record]) -> list[tuple[Any, ...]]:
    """Return the derived moments without their random ids."""
    rows = await sql.fetch(
        """SELECT m.name, m.moment_type, m.summary, m.starts_timestamp, m.ends_timestamp, m.present_persons,
                  m.topic_tags, m.emotion_tags, m.previous_moment_keys, m.source_session_id, m.metadata::text,
                  m.sources,
                  (SELECT array_agg(e.rel_type || ' ' || e.dst_key ORDER BY e.rel_type, e.dst_key)
                   FROM rem.edges e WHERE e.src_id = m.id)
           FROM rem.moments m WHERE m.deleted_at IS NULL ORDER BY m.key"""
    )
    return [tuple(row) for row in rows]


async def fetch_statement_rows(sql: asyncpg.Connection[asyncpg.Record]) -> list[tuple[Any, ...]]:
    """Return id, state and value of all statements."""
    rows = await sql.fetch("SELECT id, state, value::text FROM rem.statements ORDER BY id")
    return [tuple(row) for row in rows]


async def find_tables_with(
    sql: asyncpg.Connection[asyncpg.Record], word: str, *, beside: Sequence[str] = ()
) -> list[str]:
    """Return the tables, except those in `beside`, with a word anywhere in a row."""
    tables = await sql.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'rem'::regnamespace AND relkind IN ('r', 'p')"
    )
    matching = []
    for (table,) in tables:
        if table not in beside and await sql.fetchval(
            f"SELECT EXISTS (SELECT FROM rem.{table} t WHERE t::text ILIKE '%' || $1 || '%')", word
        ):
            matching.append(table)
    return sorted(matching)
