"""`/docs` shows and tries the operations of the API with the files of this server alone."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.web.browser import Tab


def test_an_operation_is_read_and_tried(tab: Tab) -> None:
    tab.page.goto("/docs#/sessions/list_sessions")
    tab.page.get_by_role("button", name="Try it out").click(timeout=60_000)
    with tab.page.expect_response(lambda response: "/api/v1/sessions" in response.url) as answered:
        tab.page.get_by_role("button", name="Execute").click()
    assert answered.value.json() == {"object": "list", "data": [], "has_more": False}
    assert answered.value.request.headers["x-user-id"] == tab.user
    expect(tab.page.get_by_text("Request duration")).to_be_visible()
    # Swagger UI warns of the underscore in the address of the operation.
    tab.allow("escaping deep link whitespace")


def test_axe_finds_nothing_serious(tab: Tab) -> None:
    tab.page.goto("/docs")
    tab.page.get_by_role("button", name="Authorize").wait_for(timeout=60_000)
    tab.check_accessibility()
