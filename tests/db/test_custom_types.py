"""Custom types: a class gets a table by a migration, and then works like a built-in type."""

from __future__ import annotations

import asyncio
import io
import sys
from asyncio.subprocess import PIPE, STDOUT
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest
from pydantic import BaseModel, Field

from rem.app import Rem
from rem.db.database import Database
from rem.db.dump import dump
from rem.db.load import load
from rem.db.maintenance import check_mirrors
from rem.db.migrator import Migrator
from rem.db.store import Store
from rem.db.yaml_rows import read_blocks
from rem.errors import ConflictError, InvalidInputError, RemError
from rem.models import Edge, Entity, Resource
from tests.cases import cases
from tests.conftest import settings_for

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Project(Entity, table="projects", search=("goal",), summary="goal"):
    """A project."""

    name: str
    goal: str = ""


async def table_exists(sql: Connection, table: str) -> bool:
    return bool(await sql.fetchval("SELECT to_regclass('rem.' || $1) IS NOT NULL", table))


async def columns(sql: Connection, table: str = "projects") -> dict[str, tuple[str, bool]]:
    rows = await sql.fetch(
        """SELECT column_name, data_type, is_nullable = 'YES' FROM information_schema.columns
           WHERE table_schema = 'rem' AND table_name = $1""",
        table,
    )
    return {name: (sql_type, nullable) for name, sql_type, nullable in rows}


async def roll_back(dsn: str, steps: int = 1) -> list[str]:
    async with Database(settings_for(dsn)).unpooled_connection() as connection:
        return await Migrator(connection).rollback(steps)


async def test_plan_shows_the_sql_and_changes_nothing(rem: Rem, sql: Connection) -> None:
    plan = await rem.plan_registration(Project)
    assert plan.migration is not None
    assert plan.migration.name == "custom:projects:1"
    assert 'CREATE TABLE rem."projects"' in plan.sql
    assert "\"goal\" text NOT NULL DEFAULT ''::text" in plan.sql
    assert not await table_exists(sql, "projects")
    with pytest.raises(InvalidInputError, match=r"Project is not registered: call `await rem.register\(Project\)`"):
        await rem.for_user().store.upsert(Project(name="Atlas"))


async def test_register_applies_exactly_the_plan(rem: Rem, sql: Connection) -> None:
    planned = await rem.plan_registration(Project)
    assert await rem.register(Project) == planned
    assert planned.migration is not None
    assert await sql.fetchval("SELECT checksum FROM migrations WHERE name = 'custom:projects:1'") == (
        planned.migration.checksum
    )


async def test_registering_again_does_nothing(rem: Rem, sql: Connection) -> None:
    await rem.register(Project)
    before = await sql.fetch("SELECT * FROM migrations")
    plan = await rem.register(Project)
    assert plan.migration is None
    assert plan.sql == "-- projects is up to date.\n"
    assert await sql.fetch("SELECT * FROM migrations") == before


async def test_registered_type_is_mirrored(rem: Rem, alice: Store, sql: Connection) -> None:
    await rem.register(Project)
    stored = await alice.upsert(Project(name="Project Atlas", goal="Reach the moon", graph_edges=[Edge(dst="Sarah")]))
    assert stored.key == "project-atlas"
    assert await alice.lookup("projects/ProjectAtlas", table=None) == [stored]
    assert await alice.lookup("project atlas", table="projects") == [stored]
    assert await sql.fetchval("SELECT content_summary FROM kv_store WHERE entity_type = 'projects'") == "Reach the moon"
    assert await sql.fetchval("SELECT dst_key FROM edges WHERE src_type = 'projects'") == "sarah"
    search = await sql.fetchval("SELECT search_expression FROM entity_types WHERE name = 'projects'")
    assert await sql.fetchval(f"SELECT {search} FROM projects r") == "Reach the moon"
    again = await alice.upsert(Project(name="project-atlas", goal="Mars"))
    assert (again.id, again.goal, again.name) == (stored.id, "Mars", "project-atlas")
    assert await alice.find(Project, {"goal": "Mars"}) == [again]
    await alice.delete(again)
    assert await alice.lookup("project-atlas") == []
    assert (await check_mirrors(rem.database)).is_exact


async def test_registered_type_is_isolated_by_owner(rem: Rem, alice: Store, bob: Store, shared: Store) -> None:
    await rem.register(Project)
    of_alice = await alice.upsert(Project(name="Atlas", goal="mine"))
    of_all = await shared.upsert(Project(name="Atlas", goal="everybody's"))
    assert await alice.lookup("atlas") == [of_alice, of_all]
    assert await bob.lookup("atlas") == [of_all]
    assert await bob.find(Project) == [of_all]
    assert await rem.for_user("alice@example.com", tenant="elsewhere").store.find(Project) == []
    with pytest.raises(RemError, match=f"projects has no {of_alice.id}"):
        await bob.delete(of_alice)


async def test_registered_type_is_loaded_and_dumped(rem: Rem, alice: Store, bob: Store) -> None:
    await rem.register(Project)
    yaml = "[{table: projects, key_field: name, rows: [{name: Atlas, goal: the moon, graph_edges: [{dst: atlas}]}]}]"
    report = await load(alice, read_blocks(yaml, "projects.yaml"))
    assert dict(report.tables["projects"]) == {"inserted": 1}
    dumped = io.StringIO()
    assert await dump(alice, dumped) == 1
    rows = dumped.getvalue().replace(str((await alice.find(Project))[0].id), str(uuid4()))
    await load(bob, read_blocks(rows, "dump.yaml"))
    assert [(project.name, project.goal) for project in await bob.find(Project)] == [("Atlas", "the moon")]


class Mood(StrEnum):
    GOOD = "good"
    BAD = "bad"


class Part(BaseModel):
    label: str
    size: float = 1.0
    since: datetime | None = None


class Everything(Entity, table="everything"):
    name: str
    text: str = 'a "quoted" \\ default\'s'
    whole: int = -(2**63)
    real: float = 0.1
    flag: bool = True
    price: Decimal = Decimal("19.99")
    at: datetime = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    until: datetime = datetime.max.replace(tzinfo=UTC)
    day: date = date(2026, 2, 28)
    reference: UUID = UUID(int=7)
    mood: Mood = Mood.GOOD
    sql_type: Literal["a", "b"] = "a"
    words: list[str] = Field(default_factory=lambda: ["x", "it's, {y}", ""])
    references: list[UUID] = Field(default_factory=lambda: [UUID(int=1), UUID(int=2)])
    moods: list[Mood] = Field(default_factory=lambda: [Mood.BAD])
    numbers: list[int] = Field(default_factory=lambda: [1, 2])
    data: dict[str, Any] = Field(default_factory=lambda: {"a": [1, None, {"b": "ü"}]})
    part: Part = Part(label="default", since=datetime(2026, 1, 1, tzinfo=UTC))
    parts: list[Part] = Field(default_factory=lambda: [Part(label="one"), Part(label="two", size=2.5)])
    parts_by_name: dict[str, Part] = Field(default_factory=lambda: {"p": Part(label="p")})
    anything: Any = "anything"
    maybe_text: str | None = "text"
    maybe_real: float | None = 1e300
    maybe_words: list[str] | None = Field(default_factory=lambda: ["w"])
    maybe_part: Part | None = Part(label="maybe")
    maybe_mood: Mood | None = Mood.BAD


OTHER: dict[str, Any] = {
    "text": "10 €, 𝔘𝔫𝔦, \x01\u0085\u2028 and\ttab",
    "whole": 2**63 - 1,
    "real": -1.5e-300,
    "flag": False,
    "price": Decimal("-0.000000123"),
    "at": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    "until": datetime.min.replace(tzinfo=UTC),
    "day": date(1, 1, 1),
    "reference": UUID(int=8),
    "mood": Mood.BAD,
    "sql_type": "b",
    "words": [],
    "references": [],
    "moods": [],
    "numbers": [],
    "data": {},
    "part": Part(label="other"),
    "parts": [],
    "parts_by_name": {},
    "anything": {"deep": [1.5, True]},
    **dict.fromkeys(("maybe_text", "maybe_real", "maybe_words", "maybe_part", "maybe_mood")),
}


def own_values(entity: Entity) -> dict[str, Any]:
    return entity.model_dump(exclude=set(Entity.model_fields))


@pytest.mark.parametrize("values", [{}, OTHER], ids=["defaults", "values"])
@pytest.mark.parametrize("rows", [1, 250], ids=["a few", "many"])
async def test_every_supported_field_type_round_trips(
    rem: Rem, alice: Store, values: dict[str, Any], rows: int
) -> None:
    await rem.register(Everything)
    written = [Everything(name=f"thing {number}", **values) for number in range(rows)]
    await alice.upsert_many(written)
    stored = {thing.name: thing for thing in await alice.find(Everything, limit=rows)}
    for thing in written:
        assert own_values(stored[thing.name]) == own_values(thing)
    assert (await alice.upsert_many(written)).counts == {"unchanged": rows}
    assert await alice.lookup("thing 0") == [stored["thing 0"]]


async def test_row_inserted_by_sql_has_the_class_defaults(rem: Rem, alice: Store, sql: Connection) -> None:
    await rem.register(Everything)
    await sql.execute("INSERT INTO everything (name, user_id, anything) VALUES ('x', $1, '1')", alice.scope.user_id)
    (stored,) = await alice.find(Everything)
    assert own_values(stored) == own_values(Everything(name="x", anything=1))


async def test_field_of_any_type_may_be_optional(rem: Rem, alice: Store) -> None:
    await rem.register(Everything)
    stored = await alice.upsert(Everything(name="x", anything=None))
    assert stored.anything is None


@pytest.mark.parametrize("rows", [1, 250])
async def test_time_without_a_zone_is_utc_in_every_local_zone(
    rem: Rem, alice: Store, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    await rem.register(Everything)
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        await alice.upsert_many(Everything(name=f"x{n}", at=datetime(2026, 1, 1, 12)) for n in range(rows))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert {thing.at for thing in await alice.find(Everything)} == {datetime(2026, 1, 1, 12, tzinfo=UTC)}


@pytest.mark.parametrize("rows", [1, 250])
@cases(
    "values",
    [
        {"whole": 2**63},
        {"real": float("nan")},
        {"maybe_real": float("inf")},
        {"price": Decimal("12345678901234567890.1234567890")},
        {"data": {"x": object()}},
        {"data": {"x": "\0"}},
    ],
    ids=["integer", "not a number", "infinite", "decimal", "not JSON", "NUL"],
)
async def test_value_that_would_not_round_trip_is_refused(
    rem: Rem, alice: Store, rows: int, values: dict[str, Any]
) -> None:
    await rem.register(Everything)
    with pytest.raises(InvalidInputError, match=rf"^{next(iter(values))}: (is|has|contains) "):
        await alice.upsert_many(Everything(name=f"x{number}", **values) for number in range(rows))
    assert await alice.count(Everything) == 0


async def test_new_field_gets_its_default_in_the_stored_rows(rem: Rem, alice: Store, sql: Connection) -> None:
    class Grown(Entity, table="projects", search=("goal",), summary="goal"):
        name: str
        goal: str = ""
        budget: int = 100
        lead: str | None = None

    await rem.register(Project)
    stored = await alice.upsert(Project(name="Atlas", goal="the moon"))
    plan = await rem.register(Grown)
    assert plan.sql.count("ADD COLUMN") == 2
    (grown,) = await alice.find(Grown)
    assert (grown.id, grown.goal, grown.budget, grown.lead) == (stored.id, "the moon", 100, None)
    assert (await rem.register(Grown)).migration is None


async def test_new_required_field_needs_a_default(rem: Rem) -> None:
    class Grown(Entity, table="projects", search=("goal",), summary="goal"):
        name: str
        goal: str = ""
        budget: int

    await rem.register(Project)
    with pytest.raises(InvalidInputError, match=r"Grown.budget is new and required: give it a default"):
        await rem.register(Grown)


async def test_required_field_becomes_optional_and_required_again(rem: Rem, alice: Store, sql: Connection) -> None:
    class Optional(Entity, table="projects", search=("goal",), summary="goal"):
        name: str
        goal: str | None = None

    class Required(Entity, table="projects", search=("goal",), summary="goal"):
        name: str
        goal: str

    await rem.register(Project)
    plan = await rem.register(Optional)
    assert plan.notes == ("goal may be empty from now on.",)
    assert (await columns(sql))["goal"] == ("text", True)
    await alice.upsert(Optional(name="Atlas"))
    with pytest.raises(InvalidInputError, match=r"Required.goal becomes required: give it a default first"):
        await rem.register(Required)
    await rem.register(Project)
    assert (await columns(sql))["goal"] == ("text", False)
    assert [project.goal for project in await alice.find(Project)] == [""]


async def test_removed_field_keeps_its_column(rem: Rem, alice: Store, sql: Connection) -> None:
    class Small(Entity, table="projects"):
        name: str

    await rem.register(Project)
    await alice.upsert(Project(name="Atlas", goal="the moon"))
    plan = await rem.register(Small)
    assert plan.notes == ("goal is no longer in Small; its column stays, so no data is lost.",)
    await alice.upsert(Small(name="Beacon"))
    assert await alice.lookup("atlas", "beacon") == await alice.find(Small, order_by="created_at")
    assert await sql.fetchval("SELECT goal FROM projects WHERE name = 'Atlas'") == "the moon"
    assert (await rem.register(Small)).migration is None


async def test_lossless_type_change_is_applied(rem: Rem, alice: Store, sql: Connection) -> None:
    class Whole(Entity, table="measures"):
        name: str
        value: int = 1

    class Real(Entity, table="measures"):
        name: str
        value: float = 1.0

    class Exact(Entity, table="measures"):
        name: str
        value: Decimal = Decimal(1)

    class Text(Entity, table="measures"):
        name: str
        value: str = ""

    await rem.register(Whole)
    await alice.upsert(Whole(name="x", value=42))
    sql_types = {Real: "double precision", Exact: "numeric", Text: "text"}
    for model, sql_type in sql_types.items():
        await rem.register(model)
        assert (await columns(sql, "measures"))["value"] == (sql_type, False)
    assert [measure.value for measure in await alice.find(Text)] == ["42"]
    assert (await check_mirrors(rem.database)).is_exact


async def test_change_that_would_lose_values_is_refused(rem: Rem, sql: Connection) -> None:
    class Counted(Entity, table="projects", search=("goal",), summary="goal"):
        name: str
        goal: int = 0

    await rem.register(Project)
    with pytest.raises(ConflictError, match=r"Counted.goal is stored as text and cannot become bigint.*another name"):
        await rem.register(Counted)
    assert (await columns(sql))["goal"] == ("text", False)


async def test_key_of_a_type_never_changes(rem: Rem) -> None:
    class Renamed(Entity, table="projects", key_fields=("goal",)):
        name: str
        goal: str = ""

    await rem.register(Project)
    with pytest.raises(ConflictError, match=r"The key of projects cannot change: register Renamed under another"):
        await rem.register(Renamed)


async def test_key_may_be_another_field_or_the_id(rem: Rem, alice: Store) -> None:
    class Gadget(Entity, table="gadgets", key_fields=("code",)):
        code: str

    class Event(Entity, table="events", key_fields=("id",), key_expression="id::text"):
        what: str

    await rem.register(Gadget)
    await rem.register(Event)
    gadget = await alice.upsert(Gadget(code="AB 12"))
    assert await alice.lookup("ab-12") == [gadget]
    event = await alice.upsert(Event(what="it rained"))
    assert await alice.lookup(str(event.id)) == [event]


async def test_changed_summary_field_updates_kv_store(rem: Rem, alice: Store, sql: Connection) -> None:
    class ByName(Entity, table="projects", search=("name", "goal"), summary="name"):
        name: str
        goal: str = ""

    await rem.register(Project)
    await alice.upsert(Project(name="Atlas", goal="the moon"))
    assert await sql.fetchval("SELECT content_summary FROM kv_store WHERE entity_key = 'atlas'") == "the moon"
    await rem.register(ByName)
    assert await sql.fetchval("SELECT content_summary FROM kv_store WHERE entity_key = 'atlas'") == "Atlas"
    await alice.upsert(ByName(name="Beacon", goal="the sea"))
    assert await sql.fetchval("SELECT content_summary FROM kv_store WHERE entity_key = 'beacon'") == "Beacon"
    assert (await check_mirrors(rem.database)).is_exact
    search = await sql.fetchval("SELECT search_expression FROM entity_types WHERE name = 'projects'")
    assert await sql.fetchval(f"SELECT {search} FROM projects r WHERE name = 'Atlas'") == "Atlas\nthe moon"


async def test_field_of_every_entity_cannot_be_redefined(rem: Rem) -> None:
    class Odd(Entity, table="odd"):
        name: str
        tags: dict[str, str] = Field(default_factory=dict)  # type: ignore[assignment]

    with pytest.raises(InvalidInputError, match="Odd redefines tags, which every entity has: rename it"):
        await rem.register(Odd)


async def test_builtin_table_is_refused(rem: Rem) -> None:
    class Mine(Entity, table="resources"):
        name: str

    with pytest.raises(ConflictError, match="resources is one of REM's own tables: give Mine another table name"):
        await rem.register(Mine)
    assert await rem.for_user().store.upsert(Resource(name="still there"))


@cases("table", ["kv_store", "edges", "migrations", "entity_types"])
async def test_table_without_entities_is_refused(rem: Rem, table: str) -> None:
    class Mine(Entity, table=table):
        name: str

    with pytest.raises(ConflictError, match=f"has a table {table} that is no entity type: use another name"):
        await rem.register(Mine)


@cases("annotation", [set[str], complex, int | str, Literal[1, 2], bytes, tuple[int, int]])
async def test_unsupported_field_type_is_refused_with_the_choices(rem: Rem, annotation: Any) -> None:
    class Odd(Entity, table="odd"):
        name: str
        what: annotation

    with pytest.raises(InvalidInputError, match=r"Odd.what: no column type for .* Use str, int, float, bool"):
        await rem.register(Odd)


async def test_invalid_column_name_is_refused(rem: Rem) -> None:
    class Odd(Entity, table="odd"):
        name: str
        camelCase: str = ""  # noqa: N815

    with pytest.raises(InvalidInputError, match=r"Odd.camelCase: a column's name has .* lower-case .*: rename it"):
        await rem.register(Odd)


async def test_column_may_be_an_sql_keyword(rem: Rem, alice: Store) -> None:
    class Odd(Entity, table="order", summary="select"):
        name: str
        select: str = ""
        user: str = ""
        table: str = ""
        r: int = 0

    await rem.register(Odd)
    stored = await alice.upsert(Odd(name="x", select="s", user="u", table="t", r=1))
    assert await alice.lookup("x") == [stored]


@pytest.mark.parametrize("table", ["", "Projects", "my projects", "1st", "x" * 41, 'a"; DROP TABLE rem.users; --'])
def test_invalid_table_name_is_refused(table: str) -> None:
    with pytest.raises(InvalidInputError, match="must be 1 to 40 lower-case letters, digits and underscores"):
        type("Odd", (Entity,), {"__annotations__": {"name": str}, "__module__": __name__}, table=table)


async def test_class_without_a_table_is_refused(rem: Rem) -> None:
    class Homeless(Entity):
        name: str

    with pytest.raises(InvalidInputError, match=r'Homeless has no table: write `class Homeless\(Entity, table="…"\)`'):
        await rem.register(Homeless)


def test_table_settings_with_unknown_field_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="Odd has no field 'goal', which its table settings name"):

        class Odd(Entity, table="odd", summary="goal"):
            name: str


async def test_key_must_be_text(rem: Rem) -> None:
    class Odd(Entity, table="odd", key_fields=("number",)):
        number: int

    with pytest.raises(InvalidInputError, match="Odd: the key field number must be a str"):
        await rem.register(Odd)


async def test_eight_tasks_may_register_the_same_class(dsn: str, rem: Rem) -> None:
    async def register() -> str:
        async with Rem.open(settings_for(dsn)) as other:
            return "applied" if (await other.register(Project)).migration else "nothing"

    assert sorted(await asyncio.gather(*(register() for _ in range(8)))) == ["applied"] + ["nothing"] * 7


async def test_two_processes_may_register_the_same_class(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        'from rem import Entity\nclass Project(Entity, table="projects"):\n    name: str\n    goal: str = ""\n'
    )
    environment = {"POSTGRES__CONNECTION_STRING": dsn, "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    processes = [
        await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "rem", "db", "register", "mine:Project"],
            env=environment,
            stdout=PIPE,
            stderr=STDOUT,
        )
        for _ in range(2)
    ]
    outputs = [(await process.communicate())[0].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    async with Rem.open(settings_for(dsn)) as rem:
        assert await rem.for_user().store.count(rem.for_user().store.types.get_model("projects")) == 0


async def test_process_without_the_class_reads_dumps_and_loads_the_rows(dsn: str, rem: Rem, alice: Store) -> None:
    await rem.register(Everything)
    original = await alice.upsert(Everything(name="The Thing", **OTHER))
    plain = await alice.upsert(Everything(name="Plain"))
    async with Rem.open(settings_for(dsn)) as other:
        store = other.for_user("alice@example.com").store
        (seen,) = await store.lookup("the-thing")
        assert type(seen) is not Everything
        assert seen.model_dump(mode="json") == original.model_dump(mode="json")
        dumped = io.StringIO()
        await dump(store, dumped)
        report = await load(store, read_blocks(dumped.getvalue(), "dump.yaml"))
        assert dict(report.tables["everything"]) == {"unchanged": 2}
        await alice.erase(original)
        await alice.erase(plain)
        await load(store, read_blocks(dumped.getvalue(), "dump.yaml"))
        rows = "[{table: everything, key_field: name, rows: [{name: New, anything: 1}]}]"
        assert dict((await load(store, read_blocks(rows, "new.yaml"))).tables["everything"]) == {"inserted": 1}
    assert own_values(await alice.get(Everything, original.id)) == own_values(original)
    assert own_values(await alice.get(Everything, plain.id)) == own_values(plain)
    (new,) = await alice.lookup("new")
    assert own_values(new) == own_values(Everything(name="New", anything=1))


async def test_lookup_finds_a_type_registered_by_another_process(dsn: str, rem: Rem, alice: Store) -> None:
    async with Rem.open(settings_for(dsn)) as other:
        await other.register(Project)
        await other.for_user("alice@example.com").store.upsert(Project(name="Atlas", goal="the moon"))
    (entity,) = await alice.lookup("atlas")
    assert entity.model_dump(include={"key", "goal"}) == {"key": "atlas", "goal": "the moon"}


async def test_rollback_removes_a_type_with_its_keys_and_edges(dsn: str, sql: Connection) -> None:
    async with Rem.open(settings_for(dsn)) as rem:
        alice = rem.for_user("alice@example.com").store
        await rem.register(Project)
        await alice.upsert(Project(name="Atlas", graph_edges=[Edge(dst="nowhere")]))
        await alice.upsert(Resource(name="Report", graph_edges=[Edge(dst="atlas")]))
    assert await roll_back(dsn) == ["custom:projects:1"]
    assert not await table_exists(sql, "projects")
    assert await sql.fetchval("SELECT count(*) FROM kv_store WHERE entity_type = 'projects'") == 0
    assert await sql.fetchval("SELECT count(*) FROM edges WHERE src_type = 'projects'") == 0
    assert await sql.fetchval("SELECT count(*) FROM pg_proc WHERE proname = 'rem_mirror_projects'") == 0
    async with Rem.open(settings_for(dsn)) as rem:
        alice = rem.for_user("alice@example.com").store
        assert await alice.lookup("atlas") == []
        assert await alice.count_dangling_edges() == 1
        assert (await check_mirrors(rem.database)).is_exact
        await rem.register(Project)
        assert await alice.upsert(Project(name="Atlas"))


async def test_key_field_may_be_an_sql_keyword(rem: Rem) -> None:
    class Dish(Entity, table="dishes", key_fields=("order",)):
        order: str

    await rem.register(Dish)
    await rem.for_user().store.upsert(Dish(order="Soup of the Day"))
    assert [entity.key for entity in await rem.for_user().store.lookup("soup-of-the-day")] == ["soup-of-the-day"]
    assert (await rem.register(Dish)).migration is None
