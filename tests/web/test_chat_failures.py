"""The chat when something fails: the model, a limit, or the server itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from tests.scripted_model import HangUp, Pause, Refuse, ScriptedModel
from tests.web.browser import Tab
from tests.web.chat_steps import SLOW_MS, ask, wait_for_answer
from tests.web.conftest import SCREENSHOTS, LiveServer

LIMIT = 60


@pytest.fixture
def frail_server(server_settings: dict[str, str], tmp_path: Path) -> Iterator[LiveServer]:
    """A server with a limit of requests, which a test may kill."""
    limits = {f"RATE_LIMIT__{tier}": f"{LIMIT}/hour" for tier in ("ANONYMOUS", "FREE", "BASIC", "PRO")}
    running = LiveServer({**server_settings, "REM_HOME": str(tmp_path), "RATE_LIMIT__ENABLED": "true", **limits})
    running.start()
    yield running
    running.stop()


def test_a_failed_answer_is_explained_and_tried_again(tab: Tab, script: ScriptedModel) -> None:
    script.script = lambda _body: [Refuse(500, "the model is on fire")]
    tab.open("/chat")
    ask(tab, "Hello")
    turn = wait_for_answer(tab)
    expect(turn.get_by_role("alert")).to_contain_text("model", timeout=SLOW_MS)
    expect(tab.page.get_by_role("region", name="Notifications").get_by_role("alert")).to_be_visible()
    tab.check_accessibility()
    tab.take_pictures("chat-failed")
    script.script = lambda _body: ["Half an ", HangUp()]
    turn.get_by_role("button", name="Try again").click()
    expect(turn).to_contain_text("Half an", timeout=SLOW_MS)
    expect(turn.get_by_role("alert")).to_be_visible(timeout=SLOW_MS)
    script.script = lambda _body: ["A whole answer."]
    turn.get_by_role("button", name="Try again").click()
    expect(turn).to_contain_text("A whole answer.", timeout=SLOW_MS)
    expect(turn.get_by_role("alert")).to_have_count(0)


def test_a_dead_server_and_a_limit(browser: Browser, frail_server: LiveServer, script: ScriptedModel) -> None:
    """One server for both: it takes seconds to start."""
    tab = Tab(browser, frail_server.address, "frail@example.com", SCREENSHOTS)
    script.script = lambda _body: ["The first ", "words ", Pause(30), "and the end."]
    tab.open("/chat")
    ask(tab, "Tell me")
    turn = tab.page.get_by_role("article").last
    expect(turn).to_contain_text("The first words", timeout=SLOW_MS)
    frail_server.kill()
    waiting = tab.page.get_by_text("The server does not answer. REM goes on as soon as it is back.")
    expect(waiting).to_be_visible(timeout=SLOW_MS)
    tab.take_pictures("chat-server-gone")
    script.script = lambda _body: ["The first words and the end."]
    frail_server.start()
    expect(turn).to_contain_text("The first words and the end.", timeout=SLOW_MS)
    expect(waiting).not_to_be_visible()
    expect(tab.page.get_by_role("article")).to_have_count(1)
    tab.allow("ERR_")
    for _ in range(LIMIT):
        if httpx2.get(f"{tab.address}/api/v1/models", headers=tab.headers).status_code == 429:
            break
    ask(tab, "One more")
    last = tab.page.get_by_role("article").last
    expect(last.get_by_role("button", name="Try again in")).to_be_disabled()
    expect(tab.page.get_by_role("region", name="Notifications")).to_contain_text("You can go on in")
    # The list of sessions is refused, too, a moment later.
    tab.page.wait_for_timeout(1000)
    tab.allow("429")
    tab.close()


def test_a_login_that_ends_costs_neither_the_question_nor_the_draft(browser: Browser, secured: LiveServer) -> None:
    token = httpx2.get(f"{secured.address}/api/dev/token").json()["token"]
    owner = {"Authorization": f"Bearer {token}"}
    tab = Tab(browser, secured.address, None, SCREENSHOTS)

    def sign_in() -> str:
        created = httpx2.post(f"{secured.address}/api/auth/keys", headers=owner, json={"name": "web"}).json()
        tab.page.get_by_label("API key").fill(created["key"])
        tab.page.get_by_role("button", name="Sign in with the key").click()
        tab.page.get_by_role("textbox", name="Message").wait_for()
        key: str = created["info"]["id"]
        return key

    tab.page.goto("/chat")
    key = sign_in()
    ask(tab, "My boat is called Marlin.")
    wait_for_answer(tab)
    # Nothing else of the page may notice before the question.
    tab.page.wait_for_load_state("networkidle")
    tab.page.wait_for_timeout(500)
    httpx2.delete(f"{secured.address}/api/auth/keys/{key}", headers=owner).raise_for_status()
    # Credentials that were checked are known for some seconds.
    credential = tab.page.evaluate("sessionStorage.getItem('rem.credential')")
    headers = {"Authorization": f"Bearer {credential}"}
    deadline = time.monotonic() + 60
    while httpx2.get(f"{secured.address}/api/auth/me", headers=headers).status_code != 401:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    ask(tab, "What is it called?")
    expect(tab.page.get_by_role("heading", name="Sign in to your memory")).to_be_visible()
    sign_in()
    turns = tab.page.get_by_role("article")
    expect(turns).to_have_count(2)
    tab.page.get_by_role("textbox", name="Message").fill("A draft")
    tab.page.evaluate("window.dispatchEvent(new Event('rem:sign-in'))")
    sign_in()
    expect(tab.page.get_by_role("textbox", name="Message")).to_have_value("A draft")
    turns.last.get_by_role("button", name="Try again").click()
    expect(turns.last).to_contain_text("Marlin", timeout=SLOW_MS)
    tab.allow("401")
    tab.close()
