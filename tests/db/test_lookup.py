"""Store.lookup finds entities by any spelling of a key, own rows before shared rows."""

from __future__ import annotations

import asyncio

import pytest

from rem.db.store import Store
from rem.errors import InvalidInputError
from rem.models import Edge, Moment, Resource, Session, User


async def test_every_spelling_finds_the_entity(alice: Store) -> None:
    stored = await alice.upsert(Resource(name="Sarah Chen"))
    for spelling in ("Sarah Chen", "sarah-chen", "SARAH_CHEN", "SarahChen", "  sarah   chen ", "sarah\u00a0chen"):
        assert await alice.lookup(spelling) == [stored], spelling


async def test_separators_do_not_matter_when_nothing_matches_exactly(alice: Store) -> None:
    company = await alice.upsert(Resource(name="OpenAI"))
    assert company.key == "open-ai"
    assert await alice.lookup("openai") == [company]
    plain = await alice.upsert(Resource(name="postgresql"))
    assert await alice.lookup("PostgreSQL") == [plain]
    assert await alice.lookup("resources/openai") == [company]


async def test_exact_key_wins_over_the_key_without_separators(alice: Store, shared: Store) -> None:
    await alice.upsert(Resource(name="open-ai"))
    exact = await shared.upsert(Resource(name="openai"))
    assert await alice.lookup("openai") == [exact]


async def test_type_before_a_slash_narrows_the_lookup(alice: Store) -> None:
    resource = await alice.upsert(Resource(name="Apollo"))
    moment = await alice.upsert(Moment(name="Apollo"))
    assert await alice.lookup("apollo") == [moment, resource]
    assert await alice.lookup("resources/apollo") == await alice.lookup("Resources/Apollo") == [resource]
    assert await alice.lookup("moments/Apollo") == [moment]
    assert await alice.lookup("users/apollo") == []
    assert await alice.lookup("apollo", table="moments") == [moment]


async def test_slash_in_a_key_is_not_a_type(alice: Store) -> None:
    path = await alice.upsert(Resource(name="notes/today"))
    own_type = await alice.upsert(Resource(name="moments/today"))
    await alice.upsert(Moment(name="today"))
    assert await alice.lookup("notes/today") == [path]
    assert await alice.lookup("moments/today") == [own_type]
    url = await alice.upsert(Resource(name="docs://getting-started.md"))
    assert await alice.lookup("docs://Getting-Started.md", "resources/docs://getting-started.md") == [url, url]


async def test_matches_have_the_order_of_the_keys(alice: Store) -> None:
    await alice.upsert_many([Resource(name=f"r {n}") for n in range(5)])
    entities = await alice.lookup("r 3", "nobody", "R_1", "r-3", "")
    assert [entity.key for entity in entities] == ["r-3", "r-1", "r-3"]
    assert await alice.lookup() == []


async def test_own_rows_come_before_shared_ones(alice: Store, bob: Store, shared: Store) -> None:
    ours = await shared.upsert(Resource(name="Handbook"))
    mine = await alice.upsert(Resource(name="Handbook"))
    assert await alice.lookup("handbook") == [mine, ours]
    assert await bob.lookup("handbook") == await shared.lookup("handbook") == [ours]


async def test_users_are_found_by_name_email_and_id(shared: Store) -> None:
    sarah = await shared.upsert(User(name="Sarah Chen", email="Sarah.Chen@example.com"))
    for label in ("sarah-chen", "sarah.chen@EXAMPLE.com", str(sarah.id).upper(), "users/sarah.chen@example.com"):
        assert await shared.lookup(label) == [sarah], label
    nameless = await shared.upsert(User.model_validate({"email": "bob@example.com"}))
    assert await shared.lookup("bob@example.com") == [nameless]


async def test_name_equal_to_another_email_finds_both_users(shared: Store) -> None:
    by_address = await shared.upsert(User(name="Zed", email="sam@example.com"))
    by_name = await shared.upsert(User(name="sam@example.com"))
    assert await shared.lookup("sam@example.com") == [by_name, by_address]
    await shared.delete(by_name)
    assert await shared.lookup("sam@example.com") == [by_address]


async def test_sessions_are_found_by_name_and_id(alice: Store) -> None:
    named, unnamed = await alice.upsert(Session(name="Planning")), await alice.upsert(Session())
    assert await alice.lookup("planning", str(named.id), str(unnamed.id)) == [named, named, unnamed]


async def test_invalid_key_or_table_is_refused_with_advice(alice: Store) -> None:
    with pytest.raises(InvalidInputError, match=r"There is no table 'resource'\. Did you mean 'resources'\?"):
        await alice.lookup("a", table="resource")
    with pytest.raises(InvalidInputError, match=r"NUL character.*remove it"):
        await alice.lookup("a\0b")
    with pytest.raises(InvalidInputError, match="not valid Unicode"):
        await alice.lookup("a\ud800b")
    assert await alice.lookup("x" * 1_000_000) == []


async def test_dangling_edges_are_kept_and_listed(alice: Store, bob: Store, shared: Store) -> None:
    await shared.upsert(User(name="Sarah Chen", email="sarah@example.com"))
    await bob.upsert(Resource(name="Bobs"))
    targets = ["sarah-chen", "users/sarah@example.com", "SarahChen", "Report", "Not Yet", "Bobs", "moments/report"]
    await alice.upsert(Resource(name="Report", graph_edges=[Edge(dst=dst, rel_type="cites") for dst in targets]))
    dangling = await alice.list_dangling_edges()
    assert [(edge.src_type, edge.src_key, edge.rel_type, edge.dst) for edge in dangling] == [
        ("resources", "report", "cites", dst) for dst in ("not-yet", "bobs", "moments/report")
    ]
    assert await alice.count_dangling_edges() == 3
    await alice.upsert_many([Resource(name="not yet"), Resource(name="Bobs")])
    await alice.upsert(Moment(name="Report"))
    assert await alice.list_dangling_edges() == []
    assert await bob.count_dangling_edges() == 0


async def test_type_of_an_edge_narrows_its_target(alice: Store) -> None:
    await alice.upsert(Resource(name="Apollo"))
    to_user = Edge(dst="apollo", properties={"dst_entity_type": "users"})
    await alice.upsert(Resource(name="a", graph_edges=[to_user]))
    assert await alice.count_dangling_edges() == 1
    await alice.upsert(User(name="Apollo"))
    assert await alice.count_dangling_edges() == 0


async def test_too_long_label_has_no_match(alice: Store) -> None:
    await alice.upsert(Resource(name="known"))
    # Normalising this one takes the server more than a minute.
    endless = "\u0345\u0308" * 100_000
    entities = await asyncio.wait_for(alice.lookup("known", endless), timeout=5)
    assert [entity.key for entity in entities] == ["known"]
