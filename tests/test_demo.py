"""The sample workspace: all types of rows, and edges that have a target."""

from __future__ import annotations

import pytest

from rem.app import Rem
from rem.db.load import LoadReport, load
from rem.db.maintenance import check_mirrors
from rem.db.store import Store
from rem.demo import DEMO_TENANT, load_workspace, read_workspace, remove_workspace
from rem.models import Moment, Ontology, Resource, User


@pytest.fixture
async def report(shared: Store) -> LoadReport:
    """Load the workspace for the tenant, and return the report."""
    return await load(shared, read_workspace())


async def test_workspace_has_no_dangling_edges(rem: Rem, shared: Store, report: LoadReport) -> None:
    assert {outcome for counts in report.tables.values() for outcome in counts} == {"inserted"}
    assert report.rows >= 24
    assert (report.dangling, report.deleted) == (0, [])
    assert await shared.list_dangling_edges() == []
    assert (await check_mirrors(rem.database)).is_exact


@pytest.mark.parametrize("model", [User, Resource, Moment, Ontology])
async def test_workspace_has_rows_of_every_type(
    shared: Store, report: LoadReport, model: type[User | Resource | Moment | Ontology]
) -> None:
    assert await shared.count(model) >= 3


async def test_sarah_chen_is_found_by_every_spelling(alice: Store, report: LoadReport) -> None:
    for label in ("sarah-chen", "Sarah Chen", "SarahChen", "sarah@example.com", "users/sarah-chen"):
        (sarah,) = await alice.lookup(label)
        assert (sarah.key, sarah.user_id) == ("sarah-chen", None)


async def test_quarterly_report_links_to_sarah_chen(shared: Store, report: LoadReport) -> None:
    (found,) = await shared.lookup("quarterly-report")
    (author,) = [edge for edge in found.graph_edges if edge.rel_type == "authored_by"]
    assert await shared.lookup(author.dst) == await shared.lookup("sarah-chen")


async def test_every_row_has_an_edge(shared: Store, report: LoadReport) -> None:
    blocks = read_workspace()
    named = {str(row.values["name"]) for block in blocks for row in block.rows}
    targets = {edge["dst"] for block in blocks for row in block.rows for edge in row.values.get("graph_edges", [])}
    reached = {entity.key for target in targets for entity in await shared.lookup(target)}
    sources = {
        entity.key
        for block in blocks
        for row in block.rows
        if row.values.get("graph_edges")
        for entity in await shared.lookup(str(row.values["name"]), table=block.table)
    }
    everyone = {entity.key for name in named for entity in await shared.lookup(name)}
    assert everyone - reached - sources == set()


async def test_loading_the_workspace_again_changes_nothing(shared: Store, report: LoadReport) -> None:
    again = await load(shared, read_workspace())
    assert {outcome for counts in again.tables.values() for outcome in counts} == {"unchanged"}
    assert again.rows == report.rows


async def test_workspace_is_in_nobodys_answers(rem: Rem) -> None:
    await load_workspace(rem.for_user(tenant=DEMO_TENANT).store)
    for user in (None, "alice@example.com"):
        assert (await rem.for_user(user).query('SEARCH "quarterly report" LIMIT 5')).hits == []
        assert (await rem.for_user(user).query("LOOKUP sarah-chen")).hits == []
    assert (await rem.for_user(tenant=DEMO_TENANT).query("LOOKUP sarah-chen")).count == 1


async def test_removal_erases_the_workspace_and_nothing_else(rem: Rem, shared: Store, report: LoadReport) -> None:
    note = await shared.upsert(Resource(name="Garden", content="Water the tomatoes."))
    (own,) = await shared.lookup("quarterly-report")
    await shared.upsert(own.model_copy(update={"content": "Our own report."}))
    (deleted,) = await shared.lookup("mike-johnson")
    await shared.delete(deleted)
    removed = await remove_workspace(shared)
    assert (len(removed.erased), removed.kept) == (report.rows - 1, ["resources/quarterly-report"])
    assert await shared.lookup("sarah-chen") == []
    assert await shared.find(User, with_deleted=True) == []
    assert [row.key for row in await shared.lookup("Garden", "quarterly-report")] == ["garden", "quarterly-report"]
    assert (await shared.get(Resource, note.id)).content == "Water the tomatoes."
    again = await remove_workspace(shared)
    assert (again.erased, again.kept) == ([], ["resources/quarterly-report"])
    assert (await check_mirrors(rem.database)).is_exact


async def test_rows_of_users_are_not_removed(rem: Rem, alice: Store) -> None:
    await load(alice, read_workspace())
    removed = await remove_workspace(rem.for_user(tenant=alice.scope.tenant_id).store)
    assert (removed.erased, removed.kept) == ([], [])
    assert len(await alice.lookup("sarah-chen")) == 1
