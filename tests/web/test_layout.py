"""The frame of the interface: navigation, identity, themes, keyboard, and how the server serves it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.web.browser import Tab

PAGES = ("Chat", "Memory", "Graph", "Timeline", "Files", "Care")


def test_every_page_opens_by_its_link_and_by_its_address(tab: Tab) -> None:
    tab.open("/")
    for name in PAGES:
        tab.page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        expect(tab.page).to_have_title(f"{name} · REM")
        expect(tab.page.get_by_role("heading", level=1)).to_have_text(name)
        tab.page.reload()
        expect(tab.page).to_have_title(f"{name} · REM")
    tab.page.go_back()
    expect(tab.page).to_have_title("Files · REM")


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(tab: Tab, name: str) -> None:
    tab.open(f"/{name.lower()}")
    expect(tab.page.get_by_role("heading", level=1)).to_have_text(name)
    tab.check_accessibility()
    tab.take_pictures(name.lower())


def test_the_theme_is_chosen_and_kept(tab: Tab) -> None:
    tab.open("/memory")
    tab.page.get_by_role("button", name="Account and theme").click()
    tab.page.get_by_role("menuitemradio", name="Dark").click()
    dark = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.page.reload()
    tab.page.get_by_role("main").wait_for()
    assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == dark == "rgb(19, 18, 23)"


def test_another_user_and_workspace_are_named_and_kept(tab: Tab) -> None:
    tab.open("/memory")
    tab.page.get_by_role("button", name="Account and theme").click()
    tab.page.get_by_role("menuitem", name="Change user or workspace").click()
    tab.page.get_by_label("You", exact=True).fill("carol@example.com")
    tab.page.get_by_label("Workspace").fill("demo")
    tab.page.get_by_role("button", name="Save").click()
    expect(tab.page).to_have_url(f"{tab.address}/chat")
    tab.page.reload()
    expect(tab.page.get_by_text("carol@example.com")).to_be_visible()
    expect(tab.page.get_by_text("demo", exact=True)).to_be_visible()


def test_the_navigation_works_with_the_keyboard_alone(tab: Tab) -> None:
    tab.open("/memory")
    tab.page.keyboard.press("Tab")
    expect(tab.page.get_by_role("link", name="Skip to the content")).to_be_focused()
    tab.page.keyboard.press("Enter")
    expect(tab.page.get_by_role("main")).to_be_focused()
    tab.page.get_by_role("link", name="Graph").focus()
    tab.page.keyboard.press("Enter")
    expect(tab.page).to_have_title("Graph · REM")


def test_an_unknown_address_of_a_page_is_explained(tab: Tab) -> None:
    tab.open("/chat")
    tab.page.evaluate("history.pushState(null, '', '/nowhere'); dispatchEvent(new Event('popstate'))")
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("There is no such page")
