"""Care: audit, storage, sample workspace, profile, approvals, keys and limits, and users for administrators."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
from playwright.sync_api import expect

from rem.app import Rem
from rem.approvals.approvals import Origin, Proposal
from rem.auth.accounts import Accounts
from rem.models import Resource
from tests.web.browser import Tab

NOTE = "My colleague Nadia Petrova <nadia.petrova@acme.com> moves billing to Postgres 18 in April."


def add_note(tab: Tab) -> None:
    body = {"name": "Note", "content": NOTE}
    assert httpx2.post(f"{tab.address}/api/v1/entities/resources", json=body, headers=tab.headers).status_code == 201


def test_the_audit_finds_problems_and_fixes_them(
    tab: Tab, dream: Callable[[Tab], None], with_rem: Callable[..., None]
) -> None:
    add_note(tab)
    dream(tab)

    async def break_sources(rem: Rem) -> None:
        user = rem.for_user(tab.user).store.scope.user_id
        async with rem.database.connection() as connection:
            await connection.execute(
                "DELETE FROM rem.statement_sources o USING rem.statements s "
                "WHERE s.id = o.statement_id AND s.user_id = $1",
                user,
            )

    tab.open("/care")
    audit = tab.page.get_by_role("region", name="Audit")
    expect(audit.get_by_text("fine")).to_have_count(7)
    storage = tab.page.get_by_role("region", name="Storage")
    expect(storage).to_contain_text("Notes and parts of files")
    with_rem(break_sources)
    audit.get_by_role("button", name="Check again").click()
    expect(audit.get_by_text("fine")).not_to_have_count(7)
    tab.check_accessibility()
    tab.take_pictures("care-health")
    audit.get_by_role("button", name="Fix").click()
    tab.page.get_by_role("dialog").get_by_role("button", name="Fix").click()
    expect(audit.get_by_text("fine")).to_have_count(7)


def test_the_sample_workspace_is_switched_on_and_off(tab: Tab) -> None:
    tab.open("/care")
    sample = tab.page.get_by_role("region", name="Sample workspace")
    sample.get_by_role("switch").click()
    expect(sample).to_contain_text("Loaded:", timeout=60_000)
    sample.get_by_role("button", name="Look into it").click()
    expect(tab.page.get_by_text("demo", exact=True)).to_be_visible()
    tab.open("/memory/users/sarah-chen")
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("Sarah Chen")
    expect(tab.page.get_by_role("region", name="Connections")).to_contain_text("Priya Raman")
    tab.take_pictures("memory-sample")
    tab.open("/graph?key=sarah-chen&depth=2")
    expect(tab.page.locator("[data-nodes]")).to_be_visible()
    tab.take_pictures("graph-sample")
    tab.open("/care")
    sample.get_by_role("switch").click()
    tab.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(sample).to_contain_text("Not loaded", timeout=60_000)


def test_the_profile_is_begun_and_corrected(tab: Tab) -> None:
    tab.open("/care/profile")
    expect(tab.page.get_by_role("heading", name="REM does not know you yet")).to_be_visible()
    tab.page.get_by_role("button", name="Write a profile").click()
    tab.page.get_by_role("button", name="Correct").click()
    tab.page.get_by_label("summary").fill("Keeps bees, and writes about it.")
    tab.page.get_by_label("interests").fill("bees, prose")
    tab.page.get_by_role("button", name="Save").click()
    expect(tab.page.get_by_text("Keeps bees, and writes about it.")).to_be_visible()
    expect(tab.page.get_by_text("prose", exact=True)).to_be_visible()
    tab.check_accessibility()
    tab.take_pictures("care-profile")
    row = httpx2.get(f"{tab.address}/api/v1/profile", headers=tab.headers).json()["row"]
    assert (row["summary"], row["interests"]) == ("Keeps bees, and writes about it.", ["bees", "prose"])


def test_a_request_for_approval_is_decided(tab: Tab, with_rem: Callable[..., int]) -> None:
    async def ask(rem: Rem) -> None:
        for flight in ("SK1425", "SK1426"):
            proposal = Proposal("remember", {"text": f"My flight is {flight}."}, f"Keep {flight}.", "Keep it?")
            await rem.for_user(tab.user).approvals.request(proposal, Origin())

    with_rem(ask)
    tab.open("/care/approvals")
    first = tab.page.get_by_role("region", name="Keep SK1425.")
    expect(first).to_contain_text("My flight is SK1425.")
    tab.check_accessibility()
    tab.take_pictures("care-approvals")
    first.get_by_role("button", name="Approve").click()
    expect(first).not_to_be_visible()
    tab.page.get_by_role("region", name="Keep SK1426.").get_by_role("button", name="Reject").click()
    expect(tab.page.get_by_role("heading", name="Nothing waits for you")).to_be_visible()
    expect(tab.page.get_by_role("region", name="Decided")).to_contain_text("rejected")

    async def count(rem: Rem) -> int:
        return await rem.for_user(tab.user).store.count(Resource)

    assert with_rem(count) == 1


def test_a_server_that_trusts_names_says_that_keys_are_not_needed(tab: Tab) -> None:
    tab.open("/care/access")
    expect(tab.page.get_by_text("This server trusts the names")).to_be_visible()
    expect(tab.page.get_by_text("no limit on requests")).to_be_visible()
    expect(tab.page.get_by_role("link", name="Users")).not_to_be_visible()
    tab.open("/care/users")
    expect(tab.page.get_by_role("heading", name="For administrators")).to_be_visible()


def test_a_key_is_created_shown_once_and_revoked(signed_in: Tab) -> None:
    page = signed_in.page
    page.get_by_role("button", name="Create a key").click()
    page.get_by_label("Name").fill("backup script")
    page.get_by_label("change the memory").uncheck()
    signed_in.check_accessibility()
    page.get_by_role("dialog").get_by_role("button", name="Create a key").click()
    dialog = page.get_by_role("dialog", name="Your new key")
    key = dialog.locator("code").inner_text()
    assert key.startswith("remk_")
    signed_in.take_pictures("care-key")
    address = f"{signed_in.address}/api/v1/entities/resources"
    headers = {"Authorization": f"Bearer {key}"}
    assert httpx2.get(address, headers=headers).status_code == 200
    assert httpx2.post(address, json={"name": "x"}, headers=headers).status_code == 403
    page.get_by_role("button", name="Close").click()
    assert key not in page.content()
    signed_in.check_accessibility()
    signed_in.take_pictures("care-access")
    expect(page.get_by_text("requests left")).to_be_visible()
    page.get_by_role("button", name="Revoke backup script").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("revoked", exact=True)).to_be_visible()
    assert httpx2.get(address, headers=headers).status_code == 401


def test_an_administrator_changes_the_tier_and_stops_a_user(signed_in: Tab, with_rem: Callable[..., None]) -> None:
    async def add_account(rem: Rem) -> None:
        await Accounts(rem.database).save("mallory@example.com", "default")

    with_rem(add_account)
    page = signed_in.page
    page.get_by_role("link", name="Users").click()
    row = page.get_by_role("listitem").filter(has_text="mallory@example.com")
    row.get_by_label("Tier: mallory@example.com").select_option("pro")
    row.get_by_role("switch").click()
    expect(row.get_by_role("switch")).not_to_be_checked()
    signed_in.check_accessibility()
    signed_in.take_pictures("care-users")
    page.reload()
    expect(row.get_by_label("Tier: mallory@example.com")).to_have_value("pro")
    expect(row.get_by_role("switch")).not_to_be_checked()
