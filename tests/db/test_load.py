"""`rem db load` stores all rows or none, and errors name the file, line and row."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from rem.app import Rem
from rem.db.load import LoadReport, load, read_files
from rem.db.maintenance import check_mirrors
from rem.db.store import Store
from rem.db.yaml_rows import read_blocks
from rem.errors import ConflictError, InvalidInputError
from rem.models import Edge, Message, Moment, Resource, Session, User

pytestmark = pytest.mark.slow

WORKSPACE = """
- table: users
  key_field: name
  rows:
    - name: Sarah Chen
      email: sarah@example.com
      interests: [search, writing]
- table: resources
  key_field: name
  rows:
    - name: Quarterly Report
      content: |
        Growth was fine.
        So was the weather.
      metadata: {quarter: 3, published: 2026-10-01, draft: no}
      tags: [finance]
      timestamp: 2026-10-01T12:00:00+02:00
      graph_edges:
        - {dst: SarahChen, rel_type: authored_by, weight: 0.9, properties: {dst_entity_type: users}}
    - name: Appendix
"""


async def load_text(store: Store, text: str, file: str = "rows.yaml") -> LoadReport:
    return await load(store, read_blocks(text, file))


async def load_refused(store: Store, text: str) -> str:
    """Load a file that must be refused, check that nothing was stored, and return the error."""
    with pytest.raises(InvalidInputError) as error:
        await load_text(store, text)
    for model in (User, Resource, Moment, Session, Message):
        assert await store.count(model, with_deleted=True) == 0
    return str(error.value)


def block(rows: str, table: str = "resources", key_field: str = "name") -> str:
    return f"- table: {table}\n  key_field: {key_field}\n  rows:\n" + "".join(
        f"    {line}\n" for line in rows.splitlines()
    )


def outcomes(report: LoadReport, table: str = "resources") -> dict[str, int]:
    return {str(outcome): count for outcome, count in report.tables[table].items()}


async def test_rows_are_stored_with_their_types(alice: Store) -> None:
    report = await load_text(alice, WORKSPACE)
    assert (outcomes(report, "users"), outcomes(report)) == ({"inserted": 1}, {"inserted": 2})
    assert (report.rows, report.dangling, report.deleted) == (3, 0, [])
    (entity,) = await alice.lookup("quarterly-report")
    assert isinstance(entity, Resource)
    assert entity.content == "Growth was fine.\nSo was the weather.\n"
    assert entity.metadata == {"quarter": 3, "published": "2026-10-01", "draft": False}
    assert entity.timestamp == datetime(2026, 10, 1, 10, tzinfo=UTC)
    assert entity.user_id == alice.scope.user_id
    assert await alice.lookup("users/sarah@example.com") == await alice.lookup("sarah-chen")


async def test_edges_accept_any_spelling_of_a_label(rem: Rem, alice: Store) -> None:
    await load_text(alice, WORKSPACE)
    (entity,) = await alice.lookup("quarterly-report")
    properties = {"dst_entity_type": "users"}
    assert entity.graph_edges == [Edge(dst="SarahChen", rel_type="authored_by", weight=0.9, properties=properties)]
    assert await alice.list_dangling_edges() == []
    assert (await check_mirrors(rem.database)).edges == 1


async def test_dangling_edges_are_kept_and_counted(alice: Store) -> None:
    report = await load_text(alice, block("- {name: A, graph_edges: [{dst: Not Yet}, {dst: a}]}"))
    assert report.dangling == 1
    assert [(edge.src_key, edge.dst) for edge in await alice.list_dangling_edges()] == [("a", "not-yet")]
    assert (await load_text(alice, block("- {name: not yet}"))).dangling == 0


async def test_loading_again_changes_nothing(rem: Rem, alice: Store) -> None:
    await load_text(alice, WORKSPACE)
    before = await alice.find(Resource)
    report = await load_text(alice, WORKSPACE)
    assert (outcomes(report, "users"), outcomes(report)) == ({"unchanged": 1}, {"unchanged": 2})
    assert await alice.find(Resource) == before
    assert (await check_mirrors(rem.database)).is_exact


async def test_loading_over_a_row_updates_the_given_fields(alice: Store) -> None:
    await load_text(alice, WORKSPACE)
    (before,) = await alice.lookup("quarterly report")
    report = await load_text(alice, block("- {name: quarterly_report, category: report}"))
    assert outcomes(report) == {"updated": 1}
    (after,) = await alice.lookup("quarterly report")
    assert isinstance(after, Resource)
    assert (after.id, after.category, after.tags) == (before.id, "report", ["finance"])


async def test_loading_replaces_own_edges_and_keeps_derived_ones(alice: Store) -> None:
    dreamt = Edge(dst="appendix", rel_type="similar_to", origin="dreaming")
    await alice.upsert(Resource(name="A", graph_edges=[Edge(dst="old"), dreamt]))
    await load_text(alice, block("- {name: A, graph_edges: [{dst: new}]}"))
    (entity,) = await alice.lookup("a")
    assert entity.graph_edges == [Edge(dst="new"), dreamt]


async def test_rows_may_be_identified_by_id(alice: Store) -> None:
    stored = await alice.upsert(Resource(name="Old Name", content="text"))
    report = await load_text(alice, block(f"- {{id: {stored.id}, name: New Name}}", key_field="id"))
    assert outcomes(report) == {"updated": 1}
    assert await alice.lookup("old-name") == []
    assert [(entity.id, entity.key) for entity in await alice.lookup("new-name")] == [(stored.id, "new-name")]


async def test_users_may_be_identified_by_email(alice: Store) -> None:
    stored = await alice.upsert(User(name="Sarah Chen", email="sarah@example.com"))
    rows = "- {email: Sarah@Example.com, role: Head}\n- {email: new@example.com}"
    report = await load_text(alice, block(rows, "users", "email"))
    assert outcomes(report, "users") == {"updated": 1, "inserted": 1}
    user = await alice.get(User, stored.id)
    assert (user.name, user.role) == ("Sarah Chen", "Head")
    assert [user.key for user in await alice.lookup("new@example.com")] == ["new@example.com"]
    again = await load_text(alice, block(rows, "users", "email"))
    assert outcomes(again, "users") == {"unchanged": 2}


async def test_user_identified_by_email_can_be_renamed(alice: Store) -> None:
    stored = await alice.upsert(User(name="Sarah Chen", email="sarah@example.com"))
    await load_text(alice, block("- {email: sarah@example.com, name: Sarah Smith}", "users", "email"))
    assert (await alice.get(User, stored.id)).key == "sarah-smith"


async def test_sessions_and_messages_are_loaded_for_a_user(alice: Store) -> None:
    session, message = uuid4(), uuid4()
    row = f"- {{id: {message}, session_id: {session}, message_index: 0, role: user, content: ' hello '}}"
    text = block(f"- {{id: {session}}}", "sessions", "id") + block(row, "messages", "id")
    await load_text(alice, text)
    assert (await alice.get(Message, message)).content == " hello "
    assert outcomes(await load_text(alice, text), "messages") == {"unchanged": 1}


async def test_deleted_rows_are_reported_and_stay_deleted(alice: Store) -> None:
    await load_text(alice, WORKSPACE)
    (appendix,) = await alice.lookup("appendix")
    await alice.delete(appendix)
    report = await load_text(alice, WORKSPACE)
    assert report.deleted == ["resources/appendix"]
    assert outcomes(report) == {"unchanged": 1, "deleted": 1}
    assert await alice.lookup("appendix") == []


async def test_rows_belong_to_the_scope_that_loads_them(alice: Store, bob: Store, shared: Store) -> None:
    await load_text(alice, WORKSPACE)
    await load_text(shared, WORKSPACE)
    assert len(await alice.lookup("appendix")) == 2
    assert len(await bob.lookup("appendix")) == 1


def locate(number: int, line: int) -> str:
    return f"rows.yaml:{line}: resources row {number}"


BAD_FILES = [
    ("", "rows.yaml is empty: it must hold a list of {table, key_field, rows}"),
    ("# only a remark\n", "rows.yaml is empty"),
    ("table: x", "rows.yaml:1: the file must be a list of blocks, each with table, key_field and rows"),
    ("just words", "rows.yaml:1: the file must be a list of blocks"),
    ("- table: [\n", "rows.yaml:2:1: not valid YAML: did not find expected node content"),
    ("- {a: b\n- c", "not valid YAML"),
    ("- a\n---\n- b", "rows.yaml:2:1: not valid YAML"),
    ("\t- x", "rows.yaml:1:1: not valid YAML"),
    (block("- {name: A, content: !!python/object:os.system {}}"), "rows.yaml:4:26: not valid YAML: could not det"),
    (block("- {name: A, metadata: " + "[" * 200 + "]" * 200 + "}"), "rows.yaml:4: it is nested more than 150 levels"),
    ("- word", "rows.yaml:1: a block must have table, key_field and rows"),
    ("- {table: resources, rows: []}", "rows.yaml:1: the block lacks key_field"),
    ("- {}", "rows.yaml:1: the block lacks key_field, rows, table"),
    (
        "- {table: resources, key_feild: name, rows: []}",
        "rows.yaml:1: unknown key_feild: a block has table, key_field and rows. Did you mean key_field?",
    ),
    ("- {table: resources, colour: x, rows: []}", "unknown colour: a block has table, key_field and rows."),
    ("- {table: users, table: resources, key_field: name, rows: []}", "rows.yaml:1: the field table is given more"),
    ("- {table: resources, key_field: name, rows: 3}", "rows.yaml:1: rows must be a list"),
    ("- {table: [x], key_field: name, rows: []}", "rows.yaml:1: table must be a word"),
    (block("- {name: A}", "resource"), "rows.yaml:1: There is no table 'resource'. Did you mean 'resources'?"),
    (block("- {name: A}", "kv_store"), "There is no table 'kv_store'. Register your own type with `rem db regi"),
    (block("- {name: A}", key_field="uri"), "rows.yaml:1: the key_field of resources is name or id, not uri"),
    (block("- {name: A}", "users", "mail"), "the key_field of users is name or email or id, not mail"),
    (block("- {content: x}"), f"{locate(1, 4)}: field name: is missing, and it is the key of the row"),
    (block("- {name: ''}"), f"{locate(1, 4)} (name ''): field name: is missing"),
    (block("- {name: '-_-'}"), "field name: has no letter or digit, so no key"),
    (block("- word"), f"{locate(1, 4)}: must be a mapping of fields to values"),
    (block("- {name: A, colour: red}"), f"{locate(1, 4)} (name 'A'): field colour: there is no such field"),
    (block("- {name: A, contents: x}"), "field contents: there is no such field: did you mean content?"),
    (
        block("- {name: A, graph_edges: [{dst: B, rel_typ: x}]}"),
        "field graph_edges.0.rel_typ: there is no such field: did you mean rel_type?",
    ),
    (block("- {name: A, key_: x}"), "field key_: there is no such field"),
    (
        block("- name: A\n- name: B\n  ordinal: x"),
        f"{locate(2, 5)} (name 'B'): field ordinal: input should be a valid",
    ),
    (block("- {name: 2026}"), f"{locate(1, 4)}: field name: input should be a valid string"),
    (block("- {name: A, tags: x}"), "field tags: input should be a valid list"),
    (block("- {name: A, graph_edges: [{to: B}]}"), "field graph_edges.0.dst: field required"),
    (block("- {name: A, graph_edges: [{dst: ''}]}"), "field graph_edges.0.dst: "),
    (block("- {name: A, metadata: {x: .nan}}"), "field metadata: has nan at x, which JSON cannot hold: use null"),
    (block("- {name: A, metadata: {1: x}}"), "field metadata: has the key 1, which is not a string: quote it"),
    (block("- {name: A, 7: x}"), f"{locate(1, 4)}: the field name 7 is not text: quote it"),
    (block("- {name: A, name: B}"), f"{locate(1, 4)}: the field name is given more than once"),
    (block("- name: A\n  metadata:\n    x: [{a: 1, a: 2}]"), "row 1: the field a is given more than once (line 6)"),
    (block("- {name: &a A, content: *a}"), "rows.yaml:4: YAML aliases (*name) are not supported: write the value"),
    (block('- {name: A, content: "a\\0b"}'), "field content: contains a NUL character"),
    (block('- {name: A, metadata: {x: "\\0"}}'), "field metadata: contains a NUL character"),
    (block("- {name: A, content: a\0b}"), "rows.yaml: not valid YAML: "),
    (
        block("- {name: A, tenant_id: other}"),
        "field tenant_id: is set by the store: leave it out (choose the owner",
    ),
    (block("- {name: A, user_id: bob}"), "field user_id: is set by the store: leave it out"),
    (block("- {name: A, created_at: 2999-01-01}"), "field created_at: is in the future"),
    (
        block("- {name: A, updated_at: 2001-01-01, created_at: 2002-01-01}"),
        "field updated_at: is before created_at",
    ),
    (block("- {name: A, created_at: not a time}"), "field created_at: "),
    (block("- {id: 7, name: A}", key_field="id"), "field id: "),
    (block("- {id: x, name: A}", key_field="id"), "row 1 (id 'x'): field id: input should be a valid UUID"),
    (block(f"- {{name: {'x' * 1100}}}"), "field name: is longer than 1,024 bytes"),
]


async def test_invalid_file_is_refused_with_its_location(alice: Store, subtests: pytest.Subtests) -> None:
    for text, expected in BAD_FILES:
        with subtests.test(expected=expected):
            assert expected in await load_refused(alice, text)


async def test_repeated_key_is_refused(alice: Store) -> None:
    message = await load_refused(
        alice, block("- {name: Some Report}\n- {name: Other}\n- {name: some_report, category: x}")
    )
    assert "resources row" in message
    assert "The key 'some-report' appears more than once in the batch" in message


async def test_database_error_has_the_location_of_the_row(alice: Store) -> None:
    session = uuid4()
    rows = "\n".join(
        f"- {{id: {uuid4()}, session_id: {of}, message_index: {index}, role: user, content: x}}"
        for index, of in enumerate([session, uuid4()])
    )
    message = await load_refused(alice, block(f"- {{id: {session}}}", "sessions", "id") + block(rows, "messages", "id"))
    assert "rows.yaml:9: messages row 2 (id '" in message
    assert "There is no such session of this user: create it before its messages" in message


async def test_bad_row_among_thousands_is_located(alice: Store) -> None:
    await alice.upsert(User(name="Owner", email="taken@example.com"))
    rows = [{"name": f"user {number}", "email": f"user{number}@example.com"} for number in range(300)]
    rows[123]["email"] = "taken@example.com"
    text = yaml.safe_dump([{"table": "users", "key_field": "name", "rows": rows}])
    with pytest.raises(ConflictError, match=r"users row 124 \(name 'user 123'\): Another user has this e-mail address"):
        await load_text(alice, text)
    assert await alice.count(User) == 1


async def test_messages_need_an_owner(shared: Store) -> None:
    with pytest.raises(InvalidInputError, match=r"rows.yaml:4: sessions row 1 .*have an owner: give a user"):
        await load_text(shared, block(f"- {{id: {uuid4()}}}", "sessions", "id"))


async def test_many_errors_are_listed_together(alice: Store) -> None:
    rows = "\n".join(f"- {{name: row {number}, ordinal: x, colour: red}}" for number in range(30))
    message = await load_refused(alice, block("- {name: A}", "nowhere") + block(rows))
    assert "There is no table 'nowhere'" in message
    assert message.startswith("Nothing was loaded:\n")
    assert len(message.splitlines()) == 1 + 20 + 1
    assert message.endswith("... and 41 more")


async def test_bad_row_undoes_every_block_and_file(alice: Store, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(WORKSPACE)
    row = f"- {{id: {uuid4()}, session_id: {uuid4()}, message_index: 0, role: user, content: x}}"
    bad.write_text(block("- {name: Fine}", "moments") + block(row, "messages", "id"))
    with pytest.raises(InvalidInputError, match=rf"{bad}:8: messages row 1"):
        await load(alice, read_files([good, bad]))
    for model in (User, Resource, Moment, Message):
        assert await alice.count(model) == 0


async def test_failure_halfway_undoes_earlier_rows(alice: Store) -> None:
    blocks = read_blocks(WORKSPACE, "rows.yaml")

    def fail(done: int, total: int) -> None:
        assert (done, total) == (1, 3)
        raise RuntimeError("the light went out")

    with pytest.raises(RuntimeError):
        await load(alice, blocks, fail)
    assert await alice.count(User) == 0


async def test_progress_is_reported_by_rows(alice: Store) -> None:
    message: list[tuple[int, int]] = []
    await load(alice, read_blocks(WORKSPACE, "rows.yaml"), lambda done, total: message.append((done, total)))
    assert message == [(1, 3), (3, 3)]


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=rf"{tmp_path}/none.yaml cannot be read: No such file or directory"):
        read_files([tmp_path / "none.yaml"])
    with pytest.raises(InvalidInputError, match=rf"{tmp_path} cannot be read: Is a directory"):
        read_files([tmp_path])


def test_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes("- tëxt".encode("latin-1"))
    with pytest.raises(InvalidInputError, match=r"latin.yaml is not UTF-8 text \(byte 3\): save it as UTF-8"):
        read_files([path])


async def test_byte_order_mark_is_ignored(alice: Store, tmp_path: Path) -> None:
    path = tmp_path / "windows.yaml"
    path.write_text(WORKSPACE.lstrip().replace("\n", "\r\n"), encoding="utf-8-sig", newline="")
    await load(alice, read_files([path]))
    (entity,) = await alice.lookup("quarterly-report")
    assert isinstance(entity, Resource)
    assert entity.content == "Growth was fine.\nSo was the weather.\n"


def test_endless_nesting_is_refused() -> None:
    for opening in ("[", "- ", "{a: "):
        with pytest.raises(InvalidInputError, match=r"rows.yaml:1: it is nested more than 150 levels deep"):
            read_blocks(opening * 100_000, "rows.yaml")


def test_repeated_fields_are_found_in_linear_time() -> None:
    fields = "\n".join(f"    k{number}: 1" for number in range(100_000))
    started = time.process_time()
    read_blocks(block(f"- name: A\n  metadata:\n{fields}"), "rows.yaml")
    assert time.process_time() - started < 60, "quadratic would take many minutes"


async def test_loading_no_rows_is_not_an_error(alice: Store) -> None:
    assert (await load_text(alice, "[]")).rows == 0
    assert (await load_text(alice, "- {table: resources, key_field: name, rows: []}")).rows == 0


async def test_text_of_ten_megabytes_and_of_every_plane_is_stored(alice: Store) -> None:
    content = "𝔘𝔫𝔦 漢字 👩‍👩‍👧 " * 350_000
    assert len(content.encode()) > 10_000_000
    rows = [{"name": "Großes 🌍 Buch", "content": content, "metadata": {"🔑": "🗝"}}]
    text = yaml.dump([{"table": "resources", "key_field": "name", "rows": rows}], Dumper=yaml.CSafeDumper)
    await load_text(alice, text)
    (entity,) = await alice.lookup("großes-🌍-buch")
    assert isinstance(entity, Resource)
    assert entity.content == content
    assert entity.metadata == {"🔑": "🗝"}


async def test_thousands_of_rows_are_loaded_twice(rem: Rem, alice: Store) -> None:
    rows = [
        {"name": f"row {number}", "content": f"text {number}", "graph_edges": [{"dst": f"row {number + 1}"}]}
        for number in range(5_000)
    ]
    text = yaml.dump([{"table": "resources", "key_field": "name", "rows": rows}], Dumper=yaml.CSafeDumper)
    report = await load_text(alice, text)
    assert (outcomes(report), report.dangling) == ({"inserted": 5_000}, 1)
    assert outcomes(await load_text(alice, text)) == {"unchanged": 5_000}
    assert await alice.count(Resource) == 5_000
    mirrors = await check_mirrors(rem.database)
    assert (mirrors.is_exact, mirrors.keys, mirrors.edges) == (True, 5_000, 5_000)


async def test_small_clock_skew_is_accepted(alice: Store) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=2)
    await load_text(alice, block(f"- {{name: A, created_at: '{soon.isoformat()}'}}"))
    (entity,) = await alice.lookup("a")
    assert entity.created_at == entity.updated_at == soon
