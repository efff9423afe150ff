"""The tables of hits: whole, in order, with typed values."""

from __future__ import annotations

import asyncio
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from rem import fair_map
from rem.app import Rem
from rem.db.store import Store
from rem.knowledge import record_tables
from rem.knowledge.record_tables import Quantity, load_tables, parse_value
from rem.models import File, Record, RecordKind, Resource
from tests.ingest.helpers import markdown

ALICE = "alice@example.com"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("214", Quantity(Decimal(214))),
        ("-3.5", Quantity(Decimal("-3.5"))),
        ("1,80 m", Quantity(Decimal("1.80"), "m")),
        ("45 %", Quantity(Decimal(45), "%")),
        ("1,234.50", Quantity(Decimal("1234.50"))),
        ("1.234,50", Quantity(Decimal("1234.50"))),
        ("1.234.567", Quantity(Decimal(1234567))),
        ("1,234", Quantity(Decimal(1234))),
        ("1.234", Quantity(Decimal("1.234"))),
        ("1 234 567", Quantity(Decimal(1234567))),
        ("480 €", Quantity(Decimal(480), "EUR", is_money=True)),
        ("€ 12.50", Quantity(Decimal("12.50"), "EUR", is_money=True)),
        ("$1,200", Quantity(Decimal(1200), "USD", is_money=True)),
        ("480 EUR", Quantity(Decimal(480), "EUR", is_money=True)),
        ("CHF 3", Quantity(Decimal(3), "CHF", is_money=True)),
        ("2026-11-09", date(2026, 11, 9)),
        ("9 November 2026", date(2026, 11, 9)),
        ("Nov 9, 2026", date(2026, 11, 9)),
        ("09.11.2026", date(2026, 11, 9)),
        ("31.02.2026", None),
        ("Tom", None),
        ("", None),
        ("214 and 215", None),
        ("room 214", None),
        ("9" * 100, None),
    ],
)
def test_value_follows_from_the_form(text: str, value: object) -> None:
    assert parse_value(text) == value


async def _ingest(rem: Rem, text: str, name: str = "a.md", user: str = ALICE) -> None:
    assert (await rem.for_user(user).ingester().ingest(markdown(text, name))).status == "added"


async def test_table_over_several_chunks_is_whole(rem: Rem, alice: Store) -> None:
    rows = "".join(f"| Person {number} of the long list | {number} € |\n" for number in range(100))
    await _ingest(rem, f"# Rents\n\n| Name | Rent |\n|---|---|\n{rows}\n## Other\n\n- a\n")
    chunks = await alice.find(Resource, order_by="ordinal", limit=100)
    assert len(chunks) > 3
    (table,) = await load_tables(alice, [chunks[1].id])
    assert (table.kind, table.caption, table.headers) == (RecordKind.ROW, "Rents", ("Name", "Rent"))
    assert [row.ordinal for row in table.rows] == list(range(100))
    assert table.is_complete
    # By a record, and by the file: all of its tables and lists.
    assert [found.caption for found in await load_tables(alice, [table.rows[7].id])] == ["Rents"]
    (file,) = await alice.find(File)
    assert [found.caption for found in await load_tables(alice, [file.id])] == ["Rents", "Rents, Other"]


async def test_others_run_while_a_large_table_is_loaded(
    rem: Rem, alice: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _ingest(rem, "# Rents\n\n" + "".join(f"- room {number}\n" for number in range(20)))
    (chunk,) = await alice.find(Resource)
    monkeypatch.setattr(fair_map, "MAX_SECONDS_AT_ONCE", -1.0)
    turns, seen = 0, set()
    build = Record.from_row

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def note_turn(row: dict[str, Any]) -> Record:
        seen.add(turns)
        return build(row)

    monkeypatch.setattr(Record, "from_row", note_turn)
    other = asyncio.create_task(take_turns())
    (table,) = await load_tables(alice, [chunk.id])
    other.cancel()
    assert len(table.rows) == len(seen) == 20


async def test_tables_come_in_the_order_of_the_hits(rem: Rem, alice: Store) -> None:
    for name in ("a", "b"):
        await _ingest(rem, f"# List {name}\n\n- x\n- y\n", f"{name}.md")
    first, second = await alice.find(Resource, order_by="name")
    for ids, captions in (
        ([first.id, second.id], ["List a", "List b"]),
        ([second.id, uuid4(), first.id], ["List b", "List a"]),
        ([], []),
    ):
        assert [table.caption for table in await load_tables(alice, ids)] == captions


async def test_records_of_another_user_are_not_loaded(rem: Rem, alice: Store, bob: Store, shared: Store) -> None:
    await _ingest(rem, "- mine\n")
    rows = await alice.find(Record)
    ids = [row_id for row in rows for row_id in (row.id, row.source_id, row.file_id) if row_id]
    assert await load_tables(bob, ids) == []
    assert await load_tables(shared, ids) == []
    assert len(await load_tables(alice, ids)) == 1
    # A record of Bob in the place of Alice's does not join her table.
    await bob.upsert(Record(kind=RecordKind.ITEM, block=1, source_id=rows[0].source_id, file_id=rows[0].file_id))
    (table,) = await load_tables(alice, ids)
    assert len(table.rows) == 1


async def test_cut_table_says_so(rem: Rem, alice: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_tables, "MAX_TABLE_ROWS", 3)
    await _ingest(rem, "- a\n- b\n\n# X\n\n- c\n- d\n")
    tables = await load_tables(alice, [row.id for row in await alice.find(File)])
    assert [(len(table.rows), table.is_complete) for table in tables] == [(2, True), (1, False)]
