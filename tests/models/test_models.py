"""Validation of the entity types, and their round trip through the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rem.context import Scope
from rem.db.repository import RowError
from rem.db.store import Store
from rem.errors import InvalidInputError
from rem.models import Approval, Document, Edge, Entity, Message, Moment, Resource, Role, Session, ToolGap, User

_SESSION = uuid4()


def _message(**fields: Any) -> Message:
    return Message.model_validate(
        {"session_id": _SESSION, "message_index": 0, "role": "user", "content": "Hello"} | fields
    )


def _nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


class TestContent:
    @pytest.mark.parametrize("content", ["", " ", "\n\t", "\u3000"], ids=ascii)
    def test_empty_message_is_refused(self, content: str) -> None:
        with pytest.raises(ValidationError, match="content: is empty, which only a message with tool calls may be"):
            _message(content=content)

    @pytest.mark.parametrize("content", ["", " ", "\n\t"], ids=ascii)
    def test_empty_document_is_refused(self, content: str) -> None:
        with pytest.raises(ValidationError, match=r"content\n.*is empty"):
            Document(content=content)

    def test_message_with_tool_calls_may_be_empty(self) -> None:
        assert _message(role="assistant", content="", tool_calls=[{"name": "search"}]).content == ""
        assert _message(role="tool", content="", tool_call_id="call-1").content == ""

    @pytest.mark.parametrize("content", [" hello ", "\n```\ncode\n```\n", "\ufeffa"], ids=ascii)
    def test_content_is_never_stripped(self, content: str) -> None:
        assert _message(content=content).content == content
        assert Document(content=content).content == content
        assert Resource(name="r", content=content).content == content

    def test_content_cannot_be_changed_to_empty(self) -> None:
        message = _message()
        with pytest.raises(ValidationError, match="content: is empty"):
            message.content = " "


class TestText:
    @pytest.mark.parametrize(
        ("model", "fields", "location"),
        [
            (Resource, {"name": "a\0b"}, "name"),
            (Resource, {"name": "a", "content": "a\0b"}, "content"),
            (Resource, {"name": "a", "tags": ["fine", "a\0b"]}, "tags"),
            (Resource, {"name": "a", "metadata": {"deep": [{"er": "\0"}]}}, r"at deep\[0\]\.er"),
            (Resource, {"name": "a", "metadata": {"deep": {"\0": 1}}}, "at deep"),
            (Resource, {"name": "a", "related_entities": ["\0"]}, r"at \[0\]"),
            (Resource, {"name": "a", "graph_edges": [{"dst": "a\0b"}]}, r"graph_edges\.0\.dst"),
            (Resource, {"name": "a", "graph_edges": [{"dst": "b", "properties": {"x": "\0"}}]}, "at x"),
            (User, {"name": "a", "email": "a\0@b.c"}, "email"),
            (Document, {"content": "a\0b"}, "content"),
        ],
    )
    def test_nul_is_refused_with_its_location(self, model: type[Entity], fields: dict[str, Any], location: str) -> None:
        with pytest.raises(ValidationError, match=f"(?s){location}.*NUL character|NUL character.*{location}"):
            model.model_validate(fields)

    @pytest.mark.parametrize(
        ("fields", "location"),
        [
            ({"content": "abc\ud800"}, "content: .*lone surrogate at position 3"),
            ({"tags": ["\udfff"]}, "tags: .*lone surrogate"),
            ({"metadata": {"x": "\ud800"}}, "lone surrogate at position 0 at x"),
        ],
    )
    def test_lone_surrogate_is_refused(self, fields: dict[str, Any], location: str) -> None:
        with pytest.raises(ValidationError, match=location):
            Resource(name="a", **fields)

    async def test_store_refuses_bad_text_added_after_validation(self, alice: Store) -> None:
        resource = Resource(name="a", tags=["fine"])
        resource.tags.append("\0")
        with pytest.raises(InvalidInputError):
            await alice.upsert(resource)
        assert await alice.count(Resource) == 0


class TestTimes:
    def test_time_without_a_zone_is_utc(self) -> None:
        moment = Moment(name="m", starts_timestamp=datetime(2025, 1, 1, 12))
        assert moment.starts_timestamp == datetime(2025, 1, 1, 12, tzinfo=UTC)

    def test_other_zones_are_converted(self) -> None:
        at = datetime(2025, 1, 1, 12, tzinfo=timezone(timedelta(hours=9)))
        moment = Moment(name="m", starts_timestamp=at)
        assert moment.starts_timestamp is not None
        assert moment.starts_timestamp.isoformat() == "2025-01-01T03:00:00+00:00"

    def test_default_times_are_utc(self) -> None:
        assert Resource(name="r").created_at.tzinfo is UTC

    @pytest.mark.parametrize("model", [Session, Resource])
    def test_created_at_in_the_future_is_refused(self, model: type[Entity]) -> None:
        with pytest.raises(ValidationError, match=r"created_at\n.*is in the future"):
            model.model_validate({"name": "a", "created_at": datetime.now(UTC) + timedelta(minutes=1)})

    def test_created_at_accepts_small_clock_skew(self) -> None:
        ahead = datetime.now(UTC) + timedelta(seconds=1)
        assert Resource(name="a", created_at=ahead).created_at == ahead

    def test_updated_at_before_created_at_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="updated_at: is before created_at"):
            Resource(name="a", created_at="2025-01-02T00:00:00Z", updated_at="2025-01-01T00:00:00Z")

    def test_moment_cannot_end_before_its_start(self) -> None:
        with pytest.raises(ValidationError, match="ends_timestamp: is before starts_timestamp"):
            Moment(name="m", starts_timestamp="2025-01-02T00:00:00Z", ends_timestamp="2025-01-01T00:00:00Z")

    def test_validity_cannot_end_before_its_start(self) -> None:
        with pytest.raises(ValidationError, match="valid_to: is before valid_from"):
            Resource(name="a", valid_from="2025-01-02T00:00:00Z", valid_to="2025-01-01T00:00:00Z")

    @pytest.mark.parametrize("at", ["0001-01-01T00:00:00+02:00", "9999-12-31T23:00:00-02:00"])
    def test_times_outside_utc_range_are_refused(self, at: str) -> None:
        with pytest.raises(ValidationError, match=r"valid_from\n.*outside the years"):
            Resource(name="a", valid_from=at)

    async def test_times_round_trip_in_utc_with_microseconds(self, alice: Store) -> None:
        at = datetime(2025, 6, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=-5)))
        stored = await alice.upsert(Resource(name="a", timestamp=at, created_at=at))
        read = await alice.get(Resource, stored.id)
        assert (read.timestamp, read.created_at) == (at, at)
        assert read.timestamp is not None
        assert read.timestamp.tzinfo == UTC


class TestMetadata:
    @pytest.mark.parametrize("value", [["a"], "text", 3, None], ids=repr)
    def test_metadata_must_be_an_object(self, value: Any) -> None:
        with pytest.raises(ValidationError, match=r"metadata\n.*valid dictionary"):
            Resource(name="a", metadata=value)

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ({"a": {"b": [1, float("nan")]}}, r"has nan at a\.b\[1\], which JSON cannot hold: use null"),
            ({"a": float("inf")}, "has inf at a"),
            ({"a": [2**64]}, r"integer beyond 64 bits at a\[0\]: write it as a string"),
            ({"a": -(2**63) - 1}, "integer beyond 64 bits at a"),
            ({"a": {1: "x"}}, "has the key 1 at a, which is not a string: quote it"),
            ({None: "x"}, "has the key None, which is not a string"),
            ({"a": {1, 2}}, "has a set at a, which is not JSON"),
            ({"a": b"x"}, "has a bytes at a"),
            (_nested(101), "nested more than 100 levels deep"),
        ],
    )
    def test_value_that_is_not_json_is_refused_with_its_path(self, value: Any, message: str) -> None:
        with pytest.raises(ValidationError, match=message):
            Resource(name="a", metadata=value)

    def test_recursive_metadata_is_refused(self) -> None:
        endless: dict[str, Any] = {}
        endless["again"] = endless
        with pytest.raises(ValidationError, match="nested more than 100 levels deep"):
            Resource(name="a", metadata=endless)

    async def test_metadata_of_100_levels_is_stored(self, alice: Store) -> None:
        stored = await alice.upsert(Resource(name="a", metadata=_nested(99)))
        assert (await alice.get(Resource, stored.id)).metadata == _nested(99)

    def test_times_and_ids_in_metadata_become_text(self) -> None:
        resource = Resource(name="a", metadata={"at": datetime(2025, 1, 1, tzinfo=UTC), "id": _SESSION})
        assert resource.metadata == {"at": "2025-01-01T00:00:00+00:00", "id": str(_SESSION)}

    async def test_store_refuses_metadata_made_invalid_after_validation(self, alice: Store) -> None:
        resource = Resource(name="a", metadata={"fine": 1})
        resource.metadata["bad"] = float("nan")
        with pytest.raises(RowError, match="has nan at bad"):
            await alice.upsert(resource)


class TestEmbedding:
    @pytest.mark.parametrize(
        ("vector", "message"),
        [
            ([], "is empty: leave the embedding out"),
            ([0.1, float("nan")], "not finite"),
            ([0.1, float("inf")], "not finite"),
            ([0.0, -0.0], "all zeros"),
            (["x"], "valid number"),
        ],
    )
    def test_unusable_vector_is_refused(self, vector: Any, message: str) -> None:
        with pytest.raises(ValidationError, match=message):
            Document(content="text", embedding=vector)

    @pytest.mark.parametrize("length", [383, 385])
    async def test_embedding_must_have_the_dimension_of_the_database(self, alice: Store, length: int) -> None:
        with pytest.raises(RowError, match=f"embedding: has {length} dimensions, this database has 384"):
            await alice.upsert(Document(content="text", embedding=[0.5] * length))

    @pytest.mark.parametrize("batch_size", [1, 250])
    async def test_embedding_round_trips(self, alice: Store, batch_size: int) -> None:
        vector = [(-1) ** n * n / 1024 for n in range(384)]
        report = await alice.upsert_many(
            [Document(content=f"text {n}", embedding=vector, embedding_model="test") for n in range(batch_size)]
        )
        read = await alice.get(Document, report.ids[-1])
        assert read.embedding == pytest.approx(vector, rel=1e-6)  # pgvector has single precision
        assert read.embedding_model == "test"


class TestFields:
    @pytest.mark.parametrize("role", ["user", "assistant", "system", "tool"])
    def test_known_roles_are_accepted(self, role: str) -> None:
        assert _message(role=role).role is Role(role)

    def test_unknown_role_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="role"):
            _message(role="developer")

    @pytest.mark.parametrize("email", ["nobody", "@example.com", "a@", "a b@example.com", ""])
    def test_invalid_email_is_refused(self, email: str) -> None:
        with pytest.raises(ValidationError, match=r"email\n.*is not an e-mail address"):
            User(name="a", email=email)

    def test_email_is_the_name_of_a_user_without_one(self) -> None:
        assert User.model_validate({"email": "sarah@example.com"}).name == "sarah@example.com"

    @pytest.mark.parametrize(
        ("edge", "message"),
        [
            ({"dst": " "}, "no letter or digit"),
            ({"dst": "a" * 1025}, "longer than 1,024 bytes"),
            ({"dst": "a", "rel_type": ""}, "is empty"),
            ({"dst": "a", "origin": " "}, "is empty"),
            ({"dst": "a", "weight": float("nan")}, "finite number"),
            ({"dst": "a", "properties": {"dst_entity_type": 3}}, "dst_entity_type must be the name of a table"),
            ({"dst": "a", "dest": "b"}, "Extra inputs are not permitted"),
            ({"rel_type": "knows"}, "Field required"),
        ],
    )
    def test_invalid_edge_is_refused(self, edge: dict[str, Any], message: str) -> None:
        with pytest.raises(ValidationError, match=message):
            Resource.model_validate({"name": "a", "graph_edges": [edge]})

    @pytest.mark.parametrize(
        ("model", "fields", "location"),
        [
            (Resource, {"name": "a", "ordinal": -1}, "ordinal"),
            (Resource, {"name": "a", "ordinal": 2**31}, "ordinal"),
            (Resource, {"name": "a", "confidence": 1.1}, "confidence"),
            (Resource, {"name": "a", "confidence": float("nan")}, "confidence"),
            (Resource, {"name": "a", "titel": "x"}, "titel"),
            (Message, {"session_id": _SESSION, "message_index": -1, "role": "user", "content": "x"}, "message_index"),
            (ToolGap, {"missing_tools": [], "attempted_task": "x"}, "missing_tools"),
            (
                Approval,
                {"action_type": "a", "action_description": "a", "risk_level": "mild", "tool_name": "t"},
                "risk_level",
            ),
            (
                Approval,
                {
                    "action_type": "a",
                    "action_description": "a",
                    "risk_level": "irreversible",
                    "tool_name": "t",
                    "timeout_seconds": 0,
                },
                "timeout_seconds",
            ),
        ],
    )
    def test_invalid_value_is_refused_by_field_name(
        self, model: type[Entity], fields: dict[str, Any], location: str
    ) -> None:
        with pytest.raises(ValidationError, match=location):
            model.model_validate(fields)

    @pytest.mark.parametrize(
        ("tenant", "user"), [("", None), ("t" * 256, None), ("t", ""), ("t", "u" * 256), ("t", "\0"), ("\ud800", None)]
    )
    def test_invalid_scope_is_refused(self, tenant: str, user: str | None) -> None:
        with pytest.raises(InvalidInputError, match=r"tenant|user"):
            Scope(tenant, user)


_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
# JSON does not distinguish 1e17 and 100000000000000000, so a whole float may come back as an int.
_json_floats = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: abs(x) < 2**53)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | _json_floats | _text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=12,
)
_edges = st.builds(
    Edge,
    dst=st.sampled_from(["sarah-chen", "Nobody 🎉", "users/a@b.c"]),
    rel_type=_text.filter(str.strip),
    weight=st.floats(allow_nan=False, allow_infinity=False),
    origin=st.sampled_from(["user", "dreaming"]),
    properties=st.dictionaries(_text.filter(lambda key: key != "dst_entity_type"), _json, max_size=2),
)


class TestRoundTrip:
    @settings(
        max_examples=40, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(
        content=_text,
        metadata=st.dictionaries(_text, _json, max_size=4),
        tags=st.lists(_text, max_size=4),
        edges=st.lists(_edges, max_size=3),
        batch=st.sampled_from([1, 1, 1, 200]),
    )
    async def test_entities_round_trip(
        self, alice: Store, content: str, metadata: dict[str, Any], tags: list[str], edges: list[Edge], batch: int
    ) -> None:
        fields: dict[str, Any] = {"content": content, "metadata": metadata, "tags": tags, "graph_edges": edges}
        report = await alice.upsert_many(
            [Resource(id=uuid4(), name=f"r {uuid4()}", related_entities=[metadata], **fields) for _ in range(batch)]
        )
        read = await alice.get(Resource, report.ids[-1])
        assert {name: getattr(read, name) for name in fields} == fields
        assert read.related_entities == [metadata]

    async def test_content_of_10_mb_round_trips(self, alice: Store) -> None:
        content = "Ünïcödé 🎉\n" * 600_000 + " end "
        assert len(content.encode()) > 10_000_000
        stored = await alice.upsert(Resource(name="big", content=content))
        assert stored.content == content
        [entity] = await alice.lookup("big")
        assert entity == stored


def test_updated_at_in_the_future_is_refused() -> None:
    with pytest.raises(ValidationError, match="is in the future"):
        Resource(name="x", updated_at=datetime.max.replace(tzinfo=UTC))


def test_key_field_of_a_custom_type_is_checked_as_a_label() -> None:
    class Task(Entity, table="tasks", key_fields=("order",)):
        order: str

    assert Task.entity_type.key_expression == 'rem.rem_key("order")'
    with pytest.raises(ValidationError, match="order: has no letter or digit"):
        Task(order="--")
    with pytest.raises(ValidationError, match="order: is longer than 1,024 bytes"):
        Task(order="x" * 2000)


def test_internal_column_names_are_reserved() -> None:
    with pytest.raises(InvalidInputError, match="rem_row are REM's own"):

        class Task(Entity, table="tasks"):
            name: str
            rem_row: int
