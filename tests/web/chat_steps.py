"""What a person does in the chat, for several tests."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect

from tests.web.browser import Tab

SLOW_MS = 30_000
"""Enough for an answer on a busy machine."""


def ask(tab: Tab, text: str) -> None:
    """Write a message, and send it with the Enter key."""
    box = tab.page.get_by_role("textbox", name="Message")
    box.fill(text)
    box.press("Enter")


def wait_for_answer(tab: Tab) -> Locator:
    """Wait until the last answer is complete, and return its turn."""
    expect(tab.page.get_by_role("button", name="Send", exact=True)).to_be_visible(timeout=SLOW_MS)
    return tab.page.get_by_role("article").last


def choose_agent(tab: Tab, name: str) -> None:
    """Choose who answers."""
    tab.page.get_by_role("button", name=re.compile("^Agent ")).click()
    tab.page.get_by_role("menuitemradio", name=name).first.click(timeout=SLOW_MS)


def get_session_id(tab: Tab) -> str:
    """Return the id of the open session, from its address."""
    tab.page.wait_for_url("**/chat/*")
    return tab.page.url.rpartition("/")[2]
