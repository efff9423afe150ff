"""`/entities`: create, read, change, delete and restore rows."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.models import Entity, Moment, Resource

SARAH = {"name": "Sarah Chen", "email": "sarah@example.com", "summary": "Leads the API team."}


async def test_entity_is_found_by_any_spelling_of_its_key_and_by_id(as_alice: httpx2.AsyncClient) -> None:
    created = await as_alice.post("/api/v1/entities/users", json=SARAH)
    assert created.status_code == 201
    assert created.json()["key"] == "sarah-chen"
    for name in ("sarah-chen", "Sarah Chen", "sarah@example.com", created.json()["id"]):
        answer = await as_alice.get(f"/api/v1/entities/users/{name}")
        assert answer.json() == created.json()
        assert answer.headers["etag"] == created.headers["etag"]


@pytest.mark.parametrize("path", ["entities/resources", "entities/moments", "moments"])
async def test_list_of_large_rows_is_refused(as_alice: httpx2.AsyncClient, rem: Rem, path: str) -> None:
    async with rem.database.connection() as connection:
        await connection.execute(
            "CREATE OR REPLACE FUNCTION rem.rem_max_result_bytes() RETURNS integer LANGUAGE sql IMMUTABLE RETURN 30000"
        )
    store = rem.for_user("alice@example.com").store
    await store.upsert_many([Resource(name=f"log {n}", content="x" * 20_000) for n in (1, 2)])
    await store.upsert_many([Moment(name=f"day {n}", summary="x" * 20_000) for n in (1, 2)])
    refused = await as_alice.get(f"/api/v1/{path}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "query_limit")
    assert "`limit`" in refused.json()["error"]["message"]
    for offset, has_more in ((0, True), (1, False)):
        page = (await as_alice.get(f"/api/v1/{path}", params={"limit": 1, "offset": offset})).json()
        assert (len(page["data"]), page["has_more"]) == (1, has_more)


async def test_key_may_contain_slashes(as_alice: httpx2.AsyncClient) -> None:
    await as_alice.post("/api/v1/entities/resources", json={"name": "docs://guide/start.md", "content": "Begin."})
    assert (await as_alice.get("/api/v1/entities/resources/docs://guide/start.md")).json()["content"] == "Begin."


async def test_patch_changes_only_the_given_fields(as_alice: httpx2.AsyncClient) -> None:
    created = (await as_alice.post("/api/v1/entities/users", json=SARAH)).json()
    corrected = await as_alice.patch("/api/v1/entities/users/sarah-chen", json={"summary": "Leads two teams."})
    assert corrected.status_code == 200
    assert corrected.json() == {**created, "summary": "Leads two teams.", "updated_at": corrected.json()["updated_at"]}
    emptied = await as_alice.patch("/api/v1/entities/users/sarah-chen", json={"email": None})
    assert emptied.json()["email"] is None
    assert emptied.json()["summary"] == "Leads two teams."


async def test_whole_entity_can_be_sent_back_with_a_change(as_alice: httpx2.AsyncClient) -> None:
    path = "/api/v1/entities/users/sarah-chen"
    await as_alice.post("/api/v1/entities/users", json={**SARAH, "graph_edges": [{"dst": "x", "rel_type": "knows"}]})
    read = await as_alice.get(path)
    sent = {**read.json(), "tags": ["vip"]}
    changed = await as_alice.patch(path, json=sent, headers={"If-Match": read.headers["etag"]})
    assert changed.json() == {**sent, "updated_at": changed.json()["updated_at"]}
    # The version that was read is not the stored one any more.
    assert (await as_alice.patch(path, json=sent)).status_code == 412
    listed = (await as_alice.get("/api/v1/entities/users")).json()["data"][0]
    assert (await as_alice.patch(path, json={**listed, "tags": []})).json()["tags"] == []


async def test_entity_cannot_move_to_another_table(as_alice: httpx2.AsyncClient) -> None:
    await as_alice.post("/api/v1/entities/users", json=SARAH)
    refused = await as_alice.patch("/api/v1/entities/users/sarah-chen", json={"table": "resources", "summary": "x"})
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith("table: this entity is in users")
    assert (await as_alice.get("/api/v1/entities/users/sarah-chen")).json()["summary"] == SARAH["summary"]


async def test_anonymous_caller_changes_shared_rows(anyone: httpx2.AsyncClient, as_alice: httpx2.AsyncClient) -> None:
    stored = (await anyone.post("/api/v1/entities/users", json=SARAH)).json()
    assert stored["user_id"] is None
    path = "/api/v1/entities/users/sarah-chen"
    assert (await as_alice.patch(path, json={"summary": "Mine."})).status_code == 409
    assert (await anyone.patch(path, json={"summary": "Ours."})).json()["summary"] == "Ours."


async def test_stale_if_match_is_refused(as_alice: httpx2.AsyncClient) -> None:
    read = await as_alice.post("/api/v1/entities/users", json=SARAH)
    match = {"If-Match": read.headers["etag"]}
    path = "/api/v1/entities/users/sarah-chen"
    assert (await as_alice.patch(path, json={"summary": "a"}, headers=match)).status_code == 200
    for refused in (
        await as_alice.patch(path, json={"summary": "b"}, headers=match),
        await as_alice.delete(path, headers=match),
    ):
        assert refused.status_code == 412
        assert refused.json()["error"]["code"] == "precondition_failed"
    assert (await as_alice.get(path)).json()["summary"] == "a"
    assert (await as_alice.patch(path, json={"summary": "c"}, headers={"If-Match": "*"})).status_code == 200


async def test_concurrent_patches_are_all_kept(as_alice: httpx2.AsyncClient) -> None:
    await as_alice.post("/api/v1/entities/users", json=SARAH)
    changes: list[dict[str, Any]] = [
        {"summary": "x"},
        {"role": "lead"},
        {"tier": "gold"},
        {"interests": ["chess"]},
        {"tags": ["vip"]},
    ]
    path = "/api/v1/entities/users/sarah-chen"
    answers = await asyncio.gather(*(as_alice.patch(path, json=change) for change in changes))
    assert {answer.status_code for answer in answers} == {200}
    stored = (await as_alice.get(path)).json()
    assert all(stored[name] == value for change in changes for name, value in change.items())


async def test_existing_entity_is_not_overwritten_by_post(as_alice: httpx2.AsyncClient) -> None:
    created = (await as_alice.post("/api/v1/entities/users", json=SARAH)).json()
    again = await as_alice.post("/api/v1/entities/users", json={"name": "sarah-chen", "summary": "Somebody else."})
    assert again.status_code == 409
    assert "PATCH" in again.json()["error"]["message"]
    assert (await as_alice.get("/api/v1/entities/users/sarah-chen")).json() == created


async def test_deleted_entity_can_be_restored_and_erased_one_cannot(as_alice: httpx2.AsyncClient) -> None:
    created = (await as_alice.post("/api/v1/entities/users", json=SARAH)).json()
    path = "/api/v1/entities/users/sarah-chen"
    assert (await as_alice.delete(path)).status_code == 204
    assert (await as_alice.get(path)).status_code == 404
    assert (await as_alice.get("/api/v1/entities/users")).json()["data"] == []
    listed = (await as_alice.get("/api/v1/entities/users", params={"with_deleted": True})).json()["data"]
    assert [row["id"] for row in listed] == [created["id"]]
    assert (await as_alice.post("/api/v1/entities/users", json=SARAH)).json()["error"]["code"] == "deleted"
    assert (await as_alice.post("/api/v1/restore/users/sarah-chen")).json()["id"] == created["id"]
    assert (await as_alice.post("/api/v1/restore/users/sarah-chen")).status_code == 404
    assert (await as_alice.delete(path, params={"erase": True})).status_code == 204
    assert (await as_alice.post("/api/v1/restore/users/sarah-chen")).status_code == 404


async def test_entity_of_another_user_is_not_found(as_alice: httpx2.AsyncClient, as_bob: httpx2.AsyncClient) -> None:
    created = (await as_alice.post("/api/v1/entities/users", json=SARAH)).json()
    for name in ("sarah-chen", created["id"]):
        path = f"/api/v1/entities/users/{name}"
        for answer in (
            await as_bob.get(path),
            await as_bob.patch(path, json={"summary": "mine"}),
            await as_bob.delete(path, params={"erase": True}),
            await as_bob.post(f"/api/v1/restore/users/{name}"),
        ):
            assert answer.status_code == 404
            assert "Sarah Chen" not in answer.text
    assert (await as_bob.get("/api/v1/entities/users")).json()["data"] == []
    # Not even its id is taken, as far as Bob can see.
    assert (await as_bob.post("/api/v1/entities/users", json=SARAH)).status_code == 201
    assert (await as_alice.get("/api/v1/entities/users/sarah-chen")).json() == created


async def test_shared_entity_is_read_only_for_users(as_alice: httpx2.AsyncClient, shared: Store) -> None:
    await shared.upsert(Resource(name="Handbook", content="Be kind."))
    path = "/api/v1/entities/resources/handbook"
    assert (await as_alice.get(path)).json()["user_id"] is None
    for refused in (await as_alice.patch(path, json={"content": "Be rude."}), await as_alice.delete(path)):
        assert refused.status_code == 409
        assert "shared" in refused.json()["error"]["message"]
    assert (await as_alice.get(path)).json()["content"] == "Be kind."


async def test_entities_are_filtered_sorted_and_paged(as_alice: httpx2.AsyncClient, alice: Store) -> None:
    await alice.upsert_many([Resource(name=f"note {n}", ordinal=n, tags=["odd"] if n % 2 else []) for n in range(10)])

    async def names(**asked: str | int) -> tuple[list[str], bool]:
        page = (await as_alice.get("/api/v1/entities/resources", params=asked)).json()
        return [row["name"] for row in page["data"]], page["has_more"]

    odd = await names(where="tags CONTAINS 'odd' AND ordinal > 2", order_by="-ordinal", limit=2)
    assert odd == (["note 9", "note 7"], True)
    assert await names(where="ordinal >= 8", order_by="ordinal") == (["note 8", "note 9"], False)
    assert await names(order_by="ordinal", limit=3, offset=9) == (["note 9"], False)


async def test_invalid_condition_error_has_its_position(as_alice: httpx2.AsyncClient) -> None:
    many = ",".join(["name"] * 51)
    wrong = ({"where": "ordinal >"}, {"where": "nothing = 1"}, {"order_by": "; DROP TABLE users"}, {"order_by": many})
    for asked in wrong:
        refused = await as_alice.get("/api/v1/entities/resources", params=asked)
        assert refused.status_code == 400
        assert refused.json()["error"]["message"]


async def test_unknown_fields_and_invalid_values_are_refused(as_alice: httpx2.AsyncClient) -> None:
    wrong = {
        "summray": ({**SARAH, "summray": "x"}, "summray: there is no such field"),
        "many": ({**SARAH, **{f"f{n}": n for n in range(100)}}, "f0: there is no such field"),
        "more": ({**SARAH, **{f"f{n}": n for n in range(100)}}, "And 95 more unknown fields."),
        "type": ({**SARAH, "interests": "chess"}, "interests"),
        "missing": ({"summary": "Nobody."}, "name: is missing"),
        "owner": ({**SARAH, "user_id": "bob"}, "user_id: set by the store"),
        "times": ({**SARAH, "deleted_at": "2020-01-01"}, "deleted_at: set by the store"),
        "nul": ({**SARAH, "summary": "a\0b"}, "NUL"),
        "surrogate": ({**SARAH, "summary": "a\ud800b"}, "not valid Unicode"),
        "field": ({**SARAH, "\ud800": "x"}, "unable to parse"),
        "edges": ({**SARAH, "graph_edges": [{"dst": ""}]}, "graph_edges.0.dst"),
    }
    for case, (body, reason) in wrong.items():
        # As JSON in ASCII, because clients refuse to send a lone surrogate otherwise.
        headers = {"Content-Type": "application/json"}
        refused = await as_alice.post("/api/v1/entities/users", content=json.dumps(body), headers=headers)
        assert refused.status_code == 400, case
        assert reason in refused.json()["error"]["message"], case
    assert (await as_alice.get("/api/v1/entities/users")).json()["data"] == []


async def test_patch_cannot_change_fields_of_the_store(as_alice: httpx2.AsyncClient) -> None:
    await as_alice.post("/api/v1/entities/users", json=SARAH)
    for change in ({"id": str(uuid4())}, {"user_id": "bob"}, {"key": "other"}, {"created_at": "2020-01-01"}):
        refused = await as_alice.patch("/api/v1/entities/users/sarah-chen", json=change)
        assert refused.status_code == 400
        assert "cannot change" in refused.json()["error"]["message"]


async def test_large_and_unusual_texts_are_returned_unchanged(as_alice: httpx2.AsyncClient) -> None:
    text = "日本語 🎉 \u202e ‮ e\u0301\n" + "x" * 2_000_000
    created = await as_alice.post("/api/v1/entities/resources", json={"name": "Größe", "content": text})
    assert created.status_code == 201
    assert (await as_alice.get("/api/v1/entities/resources/größe")).json()["content"] == text


async def test_unknown_table_error_suggests_the_nearest(as_alice: httpx2.AsyncClient) -> None:
    for answer in (
        await as_alice.get("/api/v1/entities/user"),
        await as_alice.post("/api/v1/entities/user", json=SARAH),
        await as_alice.get("/api/v1/entities/user/sarah-chen"),
    ):
        assert answer.status_code == 404
        assert "Did you mean 'users'?" in answer.json()["error"]["message"]


async def test_content_of_a_message_is_immutable(as_alice: httpx2.AsyncClient) -> None:
    session = (await as_alice.post("/api/v1/entities/sessions", json={"name": "Talk"})).json()["id"]
    said = {"session_id": session, "message_index": 0, "role": "user", "content": "Hello"}
    message = (await as_alice.post("/api/v1/entities/messages", json=said)).json()
    path = f"/api/v1/entities/messages/{message['key']}"
    refused = await as_alice.patch(path, json={"content": "Goodbye"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "immutable")
    assert (await as_alice.patch(path, json={"tags": ["greeting"]})).json()["content"] == "Hello"


class Project(Entity, table="projects", summary="goal", search=("goal",)):
    """A project."""

    name: str
    goal: str = ""


async def test_custom_types_are_served_also_when_registered_later(as_alice: httpx2.AsyncClient, rem: Rem) -> None:
    assert (await as_alice.get("/api/v1/entities/projects")).status_code == 404
    await rem.register(Project)
    created = await as_alice.post("/api/v1/entities/projects", json={"name": "Apollo", "goal": "The moon."})
    assert created.json()["goal"] == "The moon."
    tables = {table["name"]: table for table in (await as_alice.get("/api/v1/entities")).json()["data"]}
    assert {"users", "resources", "moments", "projects"} <= set(tables)
    assert tables["projects"]["required"] == ["name"]
