"""A dump that is loaded again restores the same memory."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field

from rem.app import Rem
from rem.db.database import Database, migrate_schema
from rem.db.dump import dump, open_for_replacement
from rem.db.load import LoadReport, load
from rem.db.maintenance import check_mirrors
from rem.db.preflight import read_server_info
from rem.db.store import Store
from rem.db.yaml_rows import read_blocks
from rem.errors import InvalidInputError
from rem.models import (
    BUILTIN_ENTITIES,
    Approval,
    Document,
    Edge,
    Entity,
    Feedback,
    File,
    Message,
    Moment,
    Ontology,
    OntologyConfig,
    ProcessingStatus,
    Record,
    RecordKind,
    Resource,
    RiskLevel,
    Role,
    Schema,
    Session,
    SharedSession,
    ToolGap,
    User,
)
from tests.conftest import settings_for

WHEN = datetime(2026, 3, 4, 5, 6, 7, 891011, UTC)


class Invoice(Entity, table="invoices", summary="note"):
    name: str
    note: str = ""
    amount: Decimal = Decimal(0)
    due: datetime | None = None
    lines: list[dict[str, Any]] = Field(default_factory=list)


async def store_everything(rem: Rem, store: Store) -> None:
    """Store one entity of each type, with as many fields as possible."""
    await rem.register(Invoice)
    session = await store.upsert(Session(name="Stand-up", mode="clone", settings={"a": [1]}, total_tokens=2**40))
    nameless = await store.upsert(Session(description="without a name"))
    calls = [{"id": "c1", "name": "search", "arguments": {"q": "x"}}]
    talk = [
        Message(session_id=session.id, message_index=0, role=Role.USER, content="  kept as it is\n\n"),
        Message(session_id=session.id, message_index=1, role=Role.ASSISTANT, tool_calls=calls, token_count=7),
        Message(session_id=nameless.id, message_index=0, role=Role.TOOL, tool_call_id="c1", tool_name="search"),
    ]
    await store.upsert_many(talk)
    edges = [
        Edge(dst="Sarah Chen", rel_type="authored_by", weight=0.1, properties={"note": "ü", "deep": [None, {"x": 1}]}),
        Edge(dst="nowhere", origin="dreaming"),
    ]
    common: dict[str, Any] = {
        "graph_edges": edges,
        "metadata": {"nested": {"list": [1, 2.5, None, True, "x"]}, "": "empty key"},
        "tags": ["b", "a", "b"],
        "origin": "ingest",
        "sources": ["a.txt"],
        "run_id": uuid4(),
        "confidence": 0.1 + 0.2,
        "valid_from": WHEN,
        "valid_to": datetime.max.replace(tzinfo=UTC),
        "expires_at": datetime.now(UTC) + timedelta(days=1),
        "created_at": WHEN,
    }
    owner = store.scope.user_id or ""
    for entity in (
        User(name="Sarah Chen", email="Sarah@Example.com", interests=["a"], last_active_at=WHEN, **common),
        SharedSession(session_id=session.id, owner_user_id=owner, shared_with_user_id="bob"),
        File(name="a.txt", size_bytes=2**40, processing_status=ProcessingStatus.FAILED, **common),
        Resource(
            name="Quarterly Report", content="x" * 5_000, ordinal=3, timestamp=WHEN, related_entities=["y"], **common
        ),
        Record(
            kind=RecordKind.ROW,
            caption="Rooms",
            headers=["Name", "Room"],
            values=["Tom", ""],
            content="Rooms: Name Tom",
            checked=True,
            block=2,
            ordinal=3,
            source_id=uuid4(),
            file_id=uuid4(),
            starts=5,
            ends=2**31 - 1,
            **common,
        ),
        Document(content="\ttext ", embedding=[1 / 3, -1e-30] * 192, embedding_model="m", **common),
        Moment(name="m", starts_timestamp=WHEN, ends_timestamp=WHEN, source_resource_ids=[uuid4()], **common),
        Ontology(name="o", extracted_data={"k": 1}, confidence_score=1.0, file_id=uuid4(), **common),
        OntologyConfig(name="c", agent_schema="s", tag_filter=["t"], priority=-5, enabled=False),
        Schema(name="s", spec={"type": "object"}),
        Feedback(session_id=session.id, message_id=talk[0].id, rating=-1, comment="no"),
        Approval(action_type="t", action_description="d", risk_level=RiskLevel.IRREVERSIBLE, tool_name="n"),
        ToolGap(missing_tools=["t"], attempted_task="x"),
        Invoice(name="i", note="n", amount=Decimal("12.50"), due=WHEN, lines=[{"x": 1}], **common),
    ):
        await store.upsert(entity)


async def read_everything(store: Store) -> dict[str, list[dict[str, Any]]]:
    """Return every field of every own entity."""
    rows = {}
    for table, model in store.types.models.items():
        entities = await store.find(model, order_by="id", limit=10_000, with_deleted=True)
        rows[table] = [entity.model_dump() for entity in entities]
    return rows


async def dump_text(store: Store, **options: Any) -> str:
    stream = io.StringIO()
    await dump(store, stream, **options)
    return stream.getvalue()


async def load_text(store: Store, text: str) -> LoadReport:
    return await load(store, read_blocks(text, "dump.yaml"))


async def erase_everything(store: Store) -> None:
    for model in reversed(store.types.models.values()):
        for entity in await store.find(model, with_deleted=True, limit=10_000):
            if model is not Message:  # they went with their session
                await store.erase(entity)


async def test_dump_restores_the_same_memory_in_an_empty_database(rem: Rem, alice: Store, empty_dsn: str) -> None:
    await store_everything(rem, alice)
    text = await dump_text(alice)
    target = settings_for(empty_dsn)
    async with Database(target).unpooled_connection() as connection:
        await migrate_schema(connection, target, await read_server_info(connection))
    async with Rem.open(target) as other:
        await other.register(Invoice)
        copy = other.for_user("alice@example.com").store
        report = await load_text(copy, text)
        expected = await read_everything(alice)
        assert {table: counts.total() for table, counts in report.tables.items()} == {
            table: len(rows) for table, rows in expected.items()
        }
        assert await read_everything(copy) == expected
        assert await copy.list_dangling_edges() == await alice.list_dangling_edges()
        assert (await check_mirrors(other.database)).is_exact
        assert await dump_text(copy) == text


async def test_dump_covers_every_table(rem: Rem, alice: Store) -> None:
    await store_everything(rem, alice)
    tables = [block["table"] for block in yaml.safe_load(await dump_text(alice))]
    assert tables == [*(model.entity_type.table for model in BUILTIN_ENTITIES), "invoices"]


async def test_loading_a_dump_into_its_source_changes_nothing(rem: Rem, alice: Store) -> None:
    await store_everything(rem, alice)
    before = await read_everything(alice)
    report = await load_text(alice, await dump_text(alice))
    assert {outcome for counts in report.tables.values() for outcome in counts} == {"unchanged"}
    assert await read_everything(alice) == before


async def test_renamed_rows_keep_their_names(alice: Store) -> None:
    stored = await alice.upsert(Resource(name="Old"))
    text = await dump_text(alice)
    stored.name = "New"
    await alice.upsert(stored)
    await load_text(alice, text)
    assert [entity.id for entity in await alice.lookup("old")] == [stored.id]


SPECIAL_TEXTS = [
    *(
        "",
        " ",
        " x",
        "x ",
        "\n",
        "\nx\n\n",
        "a\r\nb",
        "\r",
        "\t",
        "\tx",
        "a\tb",
        "  a\n b",
        "\x01\x1b\x7f",
        "\x85",
        "a\x85b",
    ),
    *(
        "\u2028",
        "a\u2029b",
        "\ufeff",
        "\ufeffx",
        "x\ufeff",
        "\ufffe\uffff",
        "\xad",
        "\u200b",
        "\x80\x9f",
        "𝔘👩‍👩‍👧",
        "é",
    ),
    *(
        "yes",
        "No",
        "~",
        "null",
        "true",
        "1e3",
        "1_000",
        "0x1F",
        "0o7",
        "12:30:45",
        "2026-01-01",
        "2026-01-01T00:00:00Z",
    ),
    *(
        ".inf",
        ".nan",
        "=",
        "<<",
        "- a",
        "a: b",
        "a #b",
        "#",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        "|",
        ">",
        "? a",
        "---",
        "...",
    ),
    *("'", '"', "''", "it's", 'a "b" \\c', "\\0", "{a", "[a", "a]", ",", ": ", "x" * 500, "word " * 100, "\n" * 50),
]


@pytest.mark.parametrize("position", ["content", "tags", "metadata key", "metadata value", "edge"])
async def test_special_characters_survive(alice: Store, position: str) -> None:
    def resource(number: int, text: str) -> Resource:
        if position == "edge":
            return Resource(name=f"r{number}", graph_edges=[Edge(dst="x", properties={text: text})])
        values = {"content": text, "tags": [text], "metadata key": {text: 1}, "metadata value": {"v": [text]}}
        return Resource(name=f"r{number}", **{position.split()[0]: values[position]})

    await alice.upsert_many([resource(number, text) for number, text in enumerate(SPECIAL_TEXTS)])
    before = await read_everything(alice)
    text = await dump_text(alice)
    await erase_everything(alice)
    await load_text(alice, text)
    assert await read_everything(alice) == before


storable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
texts = storable | st.text(st.sampled_from(" \t\r\n\x85\u2028\ufeff\x01'\"\\:#-?[]{}!&*|>%@`,~=<xé𝔘"), max_size=30)


@given(st.lists(texts, min_size=1, max_size=20))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_text_survives(alice: Store, words: list[str]) -> None:
    await erase_everything(alice)
    await alice.upsert_many(
        Resource(name=f"r{number}", content=word, tags=[word], metadata={word: {word: [word]}})
        for number, word in enumerate(words)
    )
    before = await read_everything(alice)
    text = await dump_text(alice)
    await erase_everything(alice)
    await load_text(alice, text)
    assert await read_everything(alice) == before


async def test_text_survives_a_round_trip_through_a_file(alice: Store, tmp_path: Path) -> None:
    from rem.db.load import read_files

    await alice.upsert_many(Resource(name=f"r{number}", content=text) for number, text in enumerate(SPECIAL_TEXTS))
    before = await read_everything(alice)
    path = tmp_path / "dump.yaml"
    with open_for_replacement(path) as stream:
        await dump(alice, stream)
    await erase_everything(alice)
    await load(alice, read_files([path]))
    assert await read_everything(alice) == before


async def test_only_own_rows_are_dumped(rem: Rem, alice: Store, bob: Store, shared: Store) -> None:
    elsewhere = rem.for_user("alice@example.com", tenant="elsewhere").store
    for number, store in enumerate((alice, bob, shared, elsewhere)):
        await store.upsert(Resource(name="Report", content=f"of {number}"))
    for number, store in enumerate((alice, bob, shared, elsewhere)):
        (block,) = yaml.safe_load(await dump_text(store))
        assert [row["content"] for row in block["rows"]] == [f"of {number}"]


async def test_empty_memory_is_an_empty_list(alice: Store) -> None:
    assert await dump_text(alice) == "[]\n"
    assert (await load_text(alice, "[]\n")).rows == 0


async def test_deleted_rows_are_dumped_only_on_request(alice: Store) -> None:
    await alice.delete(await alice.upsert(Resource(name="Gone")))
    assert await dump_text(alice) == "[]\n"
    assert "Gone" in await dump_text(alice, with_deleted=True)


async def test_loaded_deleted_rows_stay_deleted_and_can_be_restored(rem: Rem, alice: Store) -> None:
    gone = await alice.upsert(Resource(name="Report", content="old"))
    await alice.delete(gone)
    draft = await alice.upsert(Resource(name="Draft", content="new"))
    draft.name = "Report"  # now a live row and a deleted one have the same key
    await alice.upsert(draft)
    session = await alice.upsert(Session(name="s"))
    await alice.upsert(Message(session_id=session.id, message_index=0, role=Role.USER, content="x"))
    await alice.delete(session)
    before = await read_everything(alice)
    text = await dump_text(alice, with_deleted=True)
    assert dict((await load_text(alice, text)).tables["resources"]) == {"unchanged": 1, "deleted": 1}
    await erase_everything(alice)
    await load_text(alice, text)
    assert await read_everything(alice) == before
    assert [entity.id for entity in await alice.lookup("report")] == [draft.id]
    assert (await check_mirrors(rem.database)).is_exact
    await alice.restore(Session, session.id)
    assert await alice.count(Message) == 1
    await alice.erase(draft)
    assert (await alice.restore(Resource, gone.id)).content == "old"


async def test_many_rows_with_the_same_time_are_dumped_once_each(alice: Store) -> None:
    await alice.upsert_many(Resource(name=f"r{number}", created_at=WHEN) for number in range(2_500))
    seen: list[int] = []
    stream = io.StringIO()
    assert await dump(alice, stream, on_rows=seen.append) == 2_500
    assert seen == [1_000, 2_000, 2_500]
    blocks = yaml.load(stream.getvalue(), Loader=yaml.CSafeLoader)
    assert len({row["name"] for block in blocks for row in block["rows"]}) == 2_500


async def test_dump_is_a_snapshot(alice: Store, dsn: str) -> None:
    await alice.upsert(User(name="Sarah"))
    kept = await alice.upsert(Resource(name="Kept", content="before"))

    async def interfere() -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute("UPDATE rem.resources SET content = 'after'")
        await connection.execute("INSERT INTO rem.resources (name, user_id) VALUES ('New', $1)", alice.scope.user_id)
        await connection.close()

    def between_two_tables(rows: int) -> None:
        if rows == 1:
            thread = threading.Thread(target=lambda: asyncio.run(interfere()))
            thread.start()
            thread.join()

    stream = io.StringIO()
    assert await dump(alice, stream, on_rows=between_two_tables) == 2
    assert yaml.safe_load(stream.getvalue())[1]["rows"][0]["content"] == "before"
    assert (await alice.get(Resource, kept.id)).content == "after"


def test_file_is_replaced_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "dump.yaml"
    path.write_text("old")
    with open_for_replacement(path) as stream:
        stream.write("new")
        stream.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    with pytest.raises(ZeroDivisionError), open_for_replacement(path) as stream:
        stream.write(f"half {1 / 0}")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_link_stays_a_link_and_its_file_keeps_its_rights(tmp_path: Path) -> None:
    target, link, neighbour = tmp_path / "target.yaml", tmp_path / "link.yaml", tmp_path / "link.yaml.part"
    target.write_text("old")
    target.chmod(0o600)
    neighbour.write_text("somebody's")
    link.symlink_to(target)
    with open_for_replacement(link) as stream:
        stream.write("new")
    assert link.is_symlink()
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new", 0o600)
    assert neighbour.read_text() == "somebody's"
    assert len(list(tmp_path.iterdir())) == 3


def test_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with open_for_replacement(pipe) as stream:
        stream.write("through")
    reader.join(timeout=10)
    assert read == ["through"]
    assert pipe.is_fifo()


def test_folder_is_refused_as_target(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be written: Is a directory"), open_for_replacement(tmp_path):
        pass


async def test_failing_stream_is_not_reported_as_database_error(alice: Store) -> None:
    await alice.upsert(Resource(name="A"))

    class Full(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await dump(alice, Full())


def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "dump.yaml"
    with (
        pytest.raises(InvalidInputError, match=rf"{path} cannot be written: No such file or directory"),
        open_for_replacement(path),
    ):
        pass


async def test_ids_are_dumped_as_text(alice: Store) -> None:
    stored = await alice.upsert(Resource(name="A", run_id=UUID(int=5)))
    (block,) = yaml.safe_load(await dump_text(alice))
    assert (block["key_field"], block["rows"][0]["id"], block["rows"][0]["run_id"]) == (
        "id",
        str(stored.id),
        str(UUID(int=5)),
    )
