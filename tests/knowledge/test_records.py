"""Records: what a text says in tables and lists is stored beside its chunks, and goes with them."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias
from uuid import uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.context import Scope
from rem.db.maintenance import check_mirrors
from rem.db.store import Store
from rem.ingest.ingester import Ingester
from rem.ingest.models import FetchedFile, IngestOptions
from rem.ingest.prepare import PreparedFile
from rem.knowledge.record_tables import load_tables
from rem.knowledge.records import MAX_RECORDS
from rem.models import File, Record, RecordKind, Resource
from rem.models.field_types import utc_now
from rem.settings import Settings
from tests.encryption.keys import K1, encrypting
from tests.ingest.helpers import markdown

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
ALICE = "alice@example.com"
USER_ID = Scope.for_user(ALICE).user_id

ROOMS = """# Moving

The rooms:

| Name | Room | Rent |
|:-----|-----:|------|
| Tom  | 214  | 480 € |
| Ann  | 17   |      |

- [x] call the movers
- [ ] pack the books
"""


@pytest.fixture
def ingester(rem: Rem) -> Ingester:
    """Return an ingester for Alice."""
    return rem.for_user("alice@example.com").ingester()


async def contents(store: Store) -> list[str]:
    rows = await store.find(Record, order_by="block, ordinal", limit=1000)
    return [row.content for row in rows]


async def test_rows_are_stored_beside_the_chunks(ingester: Ingester, alice: Store, rem: Rem) -> None:
    outcome = await ingester.ingest(markdown(ROOMS), tags=["home"])
    rows = await alice.find(Record, order_by="block, ordinal")
    assert [row.content for row in rows] == [
        "Moving, The rooms: Name Tom, Room 214, Rent 480 €",
        "Moving, The rooms: Name Ann, Room 17",
        "Moving: [x] call the movers",
        "Moving: [ ] pack the books",
    ]
    tom, ann, movers, _ = rows
    assert (tom.kind, tom.headers, tom.values) == (RecordKind.ROW, ["Name", "Room", "Rent"], ["Tom", "214", "480 €"])
    assert ann.values == ["Ann", "17", ""]
    assert (movers.kind, movers.headers, movers.values, movers.checked) == (
        RecordKind.ITEM,
        [],
        ["call the movers"],
        True,
    )
    assert [(row.block, row.ordinal) for row in rows] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    (chunk,) = await alice.find(Resource)
    assert {row.source_id for row in rows} == {chunk.id}
    assert {str(row.file_id) for row in rows} == {chunk.metadata["file_id"]}
    assert ROOMS[tom.starts : tom.ends] == "| Tom  | 214  | 480 € |"
    assert (tom.tags, tom.sources, tom.origin) == (["home"], [outcome.key], "ingest")
    await rem.for_user("alice@example.com").index()
    assert (await check_mirrors(rem.database)).is_exact


async def test_search_finds_a_row_by_any_of_its_words_and_only_by_name(
    rem: Rem, ingester: Ingester, alice: Store
) -> None:
    await ingester.ingest(markdown(ROOMS))
    for words in ("Tom", "214", "movers books", "rent"):
        found = (await rem.for_user(ALICE).query(f'SEARCH "{words}" FROM records')).list_rows()
        assert found, words
        assert {row["table"] for row in found} == {"records"}
    (first, *_) = (await rem.for_user(ALICE).query('SEARCH "room of Tom" FROM records')).list_rows()
    assert first["record"]["values"] == ["Tom", "214", "480 €"]
    for query in ('SEARCH "Tom 214"', 'SEARCH "Tom 214" FIELD content', 'FUZZY "Tom 214"'):
        assert "records" not in {row["table"] for row in (await rem.for_user(ALICE).query(query)).list_rows()}, query
    (by_sql,) = (
        await rem.for_user(ALICE).query("SQL SELECT values FROM records WHERE content LIKE '%Tom%'")
    ).list_rows()
    assert by_sql["values"] == ["Tom", "214", "480 €"]


async def test_records_change_no_statistics_of_search(rem: Rem, ingester: Ingester, sql: Sql) -> None:
    await ingester.ingest(markdown(ROOMS))
    await rem.index()
    counted = await sql.fetchval(
        "SELECT coalesce(sum(passages), 0)::bigint FROM (SELECT * FROM passage_totals UNION ALL "
        "SELECT * FROM passage_total_deltas) t WHERE owner IS NULL AND entity_type = 'records'"
    )
    assert counted == 0
    assert await sql.fetchval("SELECT count(*) FROM passages WHERE entity_type = 'records'") == 4
    assert await sql.fetchval("SELECT count(embedding) FROM passages WHERE entity_type = 'records'") == 0
    assert await sql.fetchval("SELECT passages FROM rem_owner_passage_counts('default', $1, NULL)", [USER_ID]) == 1


async def test_changed_file_replaces_its_records(ingester: Ingester, alice: Store) -> None:
    await ingester.ingest(markdown(ROOMS))
    before = {row.content: (row.id, row.updated_at) for row in await alice.find(Record)}
    await ingester.ingest(markdown(ROOMS.replace("| Ann  | 17   |      |", "| Ann  | 18   |      |")))
    after = {row.content: (row.id, row.updated_at) for row in await alice.find(Record)}
    assert "Moving, The rooms: Name Ann, Room 18" in after
    assert "Moving, The rooms: Name Ann, Room 17" not in after
    # A row that stays keeps its id.
    tom = "Moving, The rooms: Name Tom, Room 214, Rent 480 €"
    assert after[tom][0] == before[tom][0]
    await ingester.ingest(markdown("# Moving\n\nIt is done.\n"))
    assert await alice.find(Record, with_deleted=True) == []


async def test_equal_rows_are_stored_each(ingester: Ingester, alice: Store) -> None:
    await ingester.ingest(markdown("| a | b |\n|---|---|\n| 1 | 2 |\n| 1 | 2 |\n"))
    assert await contents(alice) == ["a 1, b 2", "a 1, b 2"]


async def test_deleted_row_stays_deleted_when_the_file_changes(ingester: Ingester, alice: Store) -> None:
    await ingester.ingest(markdown(ROOMS))
    (tom,) = [row for row in await alice.find(Record) if "Tom" in row.content]
    await alice.delete(tom)
    await ingester.ingest(markdown(ROOMS + "- [ ] clean\n"))
    assert "Moving: [ ] clean" in await contents(alice)
    assert not any("Tom" in line for line in await contents(alice))


async def test_records_are_deleted_restored_and_erased_with_their_file(ingester: Ingester, alice: Store) -> None:
    await ingester.ingest(markdown(ROOMS))
    (file,) = await alice.find(File)
    (chunk,) = await alice.find(Resource)
    await alice.delete(file)
    assert await alice.find(Record) == []
    await alice.restore(File, file.id)
    assert len(await contents(alice)) == 4
    await alice.delete(chunk)
    assert await alice.find(Record) == []
    await alice.restore(Resource, chunk.id)
    assert len(await contents(alice)) == 4
    await alice.erase(file)
    assert await alice.find(Record, with_deleted=True) == []


async def test_records_of_an_edited_chunk_are_erased(ingester: Ingester, alice: Store) -> None:
    await ingester.ingest(markdown(ROOMS))
    (chunk,) = await alice.find(Resource)
    chunk.content = "Nobody has a room."
    await alice.upsert(chunk)
    assert await alice.find(Record, with_deleted=True) == []


async def test_records_expire_with_their_source(rem: Rem, ingester: Ingester, alice: Store) -> None:
    await ingester.ingest(markdown(ROOMS))
    (file,) = await alice.find(File)
    expires_at = utc_now() + timedelta(days=3)
    file.expires_at = expires_at
    await alice.upsert(file)
    assert {row.expires_at for row in await alice.find(Record)} == {expires_at}
    await ingester.ingest(markdown(ROOMS + "- [ ] clean\n"))
    assert {row.expires_at for row in await alice.find(Record)} == {expires_at}


async def test_forgotten_name_takes_its_records(rem: Rem, ingester: Ingester, alice: Store) -> None:
    await ingester.ingest(markdown(ROOMS))
    listed = await rem.for_user(ALICE).plan_forget("Tom")
    # The text is listed, and not its records besides.
    assert {row.ref.table for row in listed.mentions} == {"resources"}
    plan = await rem.for_user(ALICE).plan_forget("Tom", mentions=True)
    assert {row.ref.table for row in plan.erased} == {"files"}
    await rem.for_user(plan.scope).forget(plan)
    assert await alice.find(Record, with_deleted=True) == []


async def test_undone_run_and_erased_user_leave_no_record(rem: Rem, alice: Store, sql: Sql) -> None:
    ingester = rem.for_user(ALICE).ingester(run_id=uuid4())
    outcome = await ingester.ingest(markdown(ROOMS))
    await rem.for_user(ALICE).undo_ingest(str(outcome.run))
    assert await sql.fetchval("SELECT count(*) FROM records") == 0
    await ingester.ingest(markdown(ROOMS))
    assert await sql.fetchval("SELECT count(*) FROM records") == 4
    await rem.for_user(ALICE).index()
    await rem.for_user(ALICE).erase_user()
    assert await sql.fetchval("SELECT count(*) FROM records") == 0
    assert await sql.fetchval("SELECT count(*) FROM passages") == 0


async def test_other_users_see_and_reach_nothing(rem: Rem, ingester: Ingester, alice: Store, bob: Store) -> None:
    await ingester.ingest(markdown(ROOMS))
    (record, *_) = await alice.find(Record)
    assert await bob.find(Record) == []
    for query in ('SEARCH "Tom" FROM records', f"LOOKUP records/{record.id}", "SQL SELECT * FROM records"):
        assert (await rem.for_user("bob@example.com").query(query)).list_rows() == [], query
    # A record of Bob that names a chunk of Alice follows none of her writes.
    foreign = await bob.upsert(Record(kind=RecordKind.ITEM, content="mine", source_id=record.source_id))
    (file,) = await alice.find(File)
    file.expires_at = utc_now() + timedelta(days=1)
    await alice.upsert(file)
    await alice.erase(file)
    assert [(row.id, row.expires_at) for row in await bob.find(Record)] == [(foreign.id, None)]
    again = await bob.upsert(Record(kind=RecordKind.ITEM, content="mine too", source_id=record.source_id))
    assert again.expires_at is None


async def test_encrypted_records_are_read_and_found(settings: Settings, sql: Sql) -> None:
    async with Rem.open(encrypting(settings, K1)) as rem:
        await rem.for_user(ALICE).ingester().ingest(markdown(ROOMS))
        await rem.for_user(ALICE).ingester().ingest(markdown(ROOMS + "- [ ] clean\n"))
        rows = await rem.for_user(ALICE).store.find(Record, order_by="block, ordinal")
        assert (rows[0].headers, rows[0].values) == (["Name", "Room", "Rent"], ["Tom", "214", "480 €"])
        assert rows[0].caption == "Moving, The rooms"
        assert len(rows) == 5
        (first, *_) = (await rem.for_user(ALICE).query('SEARCH "Tom" FROM records')).list_rows()
        assert first["record"]["values"] == ["Tom", "214", "480 €"]
        stored = await sql.fetchval("SELECT string_agg(to_jsonb(r)::text, '') FROM records r")
        for word in ("Tom", "214", "Rent", "Moving", "movers"):
            assert word not in stored, word


async def test_secrets_are_masked_in_records(rem: Rem, alice: Store) -> None:
    secret = "sk-proj-" + "a1B2" * 12
    text = f"| Service | Key |\n|---|---|\n| Mail | {secret} |\n\n- key: {secret}\n- name: x\n"
    await rem.for_user(ALICE).ingester().ingest(markdown(text))
    rows = await alice.find(Record)
    assert len(rows) == 3
    assert not any(secret in str(row.model_dump()) for row in rows)


async def test_ten_thousand_rows_are_stored(rem: Rem, alice: Store) -> None:
    lines = "".join(f"| Tom {number} | {number} | 12.50 € |\n" for number in range(10_000))
    outcome = (
        await rem.for_user(ALICE)
        .ingester()
        .ingest(markdown(f"# Rooms\n\n| Name | Room | Rent |\n|---|---|---|\n{lines}"))
    )
    assert (outcome.status, outcome.note) == ("added", None)
    assert await alice.count(Record) == 10_000


async def test_rows_beyond_the_limit_are_left_out_with_a_note(rem: Rem, alice: Store) -> None:
    lines = "\n".join(f"{number},{number * 2}" for number in range(MAX_RECORDS + 5))
    file = FetchedFile("big.csv", "file:///big.csv", f"a,b\n{lines}\n".encode())
    prepared = await rem.for_user(ALICE).ingester().read(file, IngestOptions())
    assert isinstance(prepared, PreparedFile)
    assert len(prepared.records.records) == MAX_RECORDS
    assert not prepared.records.is_complete


async def test_rows_of_a_csv_file_are_records(rem: Rem, alice: Store) -> None:
    csv = 'name,room,note\nTom,214,"likes; colon: tea"\nAnn,,\n'
    await rem.for_user(ALICE).ingester().ingest(FetchedFile("rooms.csv", "file:///rooms.csv", csv.encode()))
    rows = await alice.find(Record, order_by="ordinal")
    assert [row.headers for row in rows] == [["name", "room", "note"]] * 2
    assert [row.values for row in rows] == [["Tom", "214", "likes; colon: tea"], ["Ann", "", ""]]


async def test_remembered_table_has_records_that_go_with_the_note(rem: Rem, alice: Store) -> None:
    await rem.for_user(ALICE).remember("The plumber comes on Friday: he knows.")
    assert await alice.find(Record) == []
    text = "The rooms:\n\n| Name | Room |\n|---|---|\n| Tom | 214 |\n\nPhone: 12\nMail: a@b.org"
    await rem.for_user(ALICE).remember(text, tags=["home"])
    rows = await alice.find(Record, order_by="block, ordinal")
    assert [row.content for row in rows] == ["The rooms: Name Tom, Room 214", "Phone 12", "Mail a@b.org"]
    (note,) = [note for note in await alice.find(Resource) if "Tom" in note.content]
    assert {(row.source_id, row.file_id, row.origin, tuple(row.tags)) for row in rows} == {
        (note.id, None, note.origin, ("home",))
    }
    assert [table.kind for table in await load_tables(alice, [note.id])] == [RecordKind.ROW, RecordKind.FIELD]
    # The same note again adds nothing.
    await rem.for_user(ALICE).remember(text)
    assert len(await alice.find(Record)) == 3
    await alice.erase(note)
    assert await alice.find(Record, with_deleted=True) == []


async def test_scores_of_other_searches_are_the_same_without_records(rem: Rem, ingester: Ingester, sql: Sql) -> None:
    await ingester.ingest(markdown(ROOMS))
    await ingester.ingest(
        markdown("# Tom\n\nTom has a cat.\n\n- the cat sleeps in the rooms\n- Tom feeds it\n", "tom.md")
    )

    async def search() -> list[list[tuple[str, float | None]]]:
        await rem.index()
        results = [
            await rem.for_user(ALICE).query(f'SEARCH "{text}"') for text in ("room of Tom", "who feeds the cat", "17")
        ]
        return [[(row["key"], row["score"]) for row in result.list_rows()] for result in results]

    with_records = await search()
    assert all(with_records)
    await sql.execute("DELETE FROM records")
    assert await search() == with_records
