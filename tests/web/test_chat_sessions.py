"""The list of sessions: find, rename, share, export and forget, and sessions of other people."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import httpx2
from playwright.sync_api import Browser, Response, Route, expect

from rem.app import Rem
from rem.models import Role, Session
from rem.sessions.message import NewMessage
from rem.settings import PostgresSettings, Settings
from tests.scripted_model import ScriptedModel, last_text
from tests.web.browser import Tab
from tests.web.chat_steps import SLOW_MS, ask, get_session_id, wait_for_answer
from tests.web.conftest import SCREENSHOTS, LiveServer, run_async


def begin(tab: Tab, name: str, said: str) -> str:
    """Store a session with one message, and return its id."""
    session_id = str(uuid4())
    chat = {"model": "rem:local", "messages": [{"role": "user", "content": said}]}
    headers = {**tab.headers, "X-Session-Id": session_id}
    httpx2.post(f"{tab.address}/v1/chat/completions", headers=headers, json=chat, timeout=60).raise_for_status()
    path = f"{tab.address}/api/v1/sessions/{session_id}"
    httpx2.patch(path, headers=tab.headers, json={"name": name}).raise_for_status()
    return session_id


def choose(tab: Tab, title: str, action: str) -> None:
    """Open the menu of a session in the list, and choose an action."""
    sessions = tab.page.get_by_role("navigation", name="Sessions")
    sessions.get_by_role("button", name=f"Actions for {title}").click()
    tab.page.get_by_role("menuitem", name=action).click()


def test_sessions_are_found_renamed_exported_and_forgotten(tab: Tab, tmp_path: Path) -> None:
    begin(tab, "Boats", "My sailing boat is in Aarhus.")
    begin(tab, "Cakes", "Carrots, nuts and sugar.")
    tab.open("/chat")
    rows = tab.page.get_by_role("navigation", name="Sessions").get_by_role("link")
    expect(rows).to_have_text(["Cakes", "Boats"])
    search = tab.page.get_by_role("searchbox", name="Find a session")
    search.fill("sailing boat")
    expect(rows).to_have_text(["Boats"])
    search.fill("<b>nothing</b> like this")
    expect(tab.page.get_by_text("No session has “<b>nothing</b> like this”")).to_be_visible()
    search.fill("")
    expect(rows).to_have_text(["Cakes", "Boats"])
    choose(tab, "Boats", "Rename")
    tab.page.get_by_role("dialog").get_by_label("Name").fill("Cakes")
    tab.page.keyboard.press("Enter")
    expect(tab.page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    tab.page.get_by_role("dialog").get_by_label("Name").fill("Ships")
    tab.page.keyboard.press("Enter")
    expect(rows).to_have_text(["Ships", "Cakes"])
    tab.allow("409")
    with tab.page.expect_download() as download:
        choose(tab, "Ships", "Export")
    download.value.save_as(tmp_path / "ships.jsonl")
    exported = json.loads((tmp_path / "ships.jsonl").read_text(encoding="utf-8"))
    assert (download.value.suggested_filename, exported["session"]["name"]) == ("Ships.jsonl", "Ships")
    rows.filter(has_text="Ships").click()
    choose(tab, "Ships", "Forget")
    dialog = tab.page.get_by_role("dialog", name="Forget this session?")
    dialog.get_by_role("button", name="Cancel").click()
    expect(rows).to_have_count(2)
    choose(tab, "Ships", "Forget")
    tab.take_pictures("chat-forget")
    dialog.get_by_role("button", name="Forget").click()
    expect(rows).to_have_text(["Cakes"])
    expect(tab.page).to_have_url(f"{tab.address}/chat")
    tab.page.get_by_role("button", name="Undo").click()
    expect(rows).to_have_text(["Ships", "Cakes"])
    expect(tab.page.get_by_role("article")).to_contain_text("My sailing boat is in Aarhus.")


def test_a_menu_stays_open_while_a_session_is_loading(tab: Tab) -> None:
    session_id = begin(tab, "Boats", "My sailing boat is in Aarhus.")
    tab.open("/chat")
    sessions = tab.page.get_by_role("navigation", name="Sessions")
    held: list[Route] = []
    tab.page.route(f"**/sessions/{session_id}/messages*", lambda route: held.append(route))
    sessions.get_by_role("link", name="Boats").click()
    sessions.get_by_role("button", name="Actions for Boats").click()
    forget = tab.page.get_by_role("menuitem", name="Forget")
    expect(forget).to_be_visible()
    while not held:
        tab.page.wait_for_timeout(50)
    for route in held:
        route.continue_()
    expect(tab.page.get_by_role("textbox", name="Message")).to_be_visible()
    expect(forget).to_be_visible()


def test_a_shared_session_is_read_copied_and_taken_back(tab: Tab, browser: Browser, server: LiveServer) -> None:
    session_id = begin(tab, "Boats", "My sailing boat is in Aarhus.")
    bob = Tab(browser, server.address, "bob.reader@example.com", SCREENSHOTS)
    bob.open(f"/chat/{session_id}")
    expect(bob.page.get_by_role("heading", name="There is no such session")).to_be_visible()
    bob.allow("404")
    tab.open(f"/chat/{session_id}")
    choose(tab, "Boats", "Share")
    dialog = tab.page.get_by_role("dialog", name="Share the session")
    dialog.get_by_label("E-mail address").fill(bob.user or "")
    tab.page.keyboard.press("Enter")
    expect(dialog.get_by_role("listitem")).to_have_count(1)
    bob.open("/chat")
    bob.page.get_by_role("link", name="Boats").click()
    expect(bob.page.get_by_role("article")).to_contain_text("My sailing boat is in Aarhus.")
    expect(bob.page.get_by_text("Somebody shares this session with you.")).to_be_visible()
    expect(bob.page.get_by_role("textbox", name="Message")).to_have_count(0)
    bob.page.get_by_role("button", name="Copy it and go on").click()
    expect(bob.page.get_by_role("textbox", name="Message")).to_be_visible()
    ask(bob, "Where is it?")
    wait_for_answer(bob)
    dialog.get_by_role("button", name="Stop sharing").click()
    expect(dialog.get_by_text("Nobody else can read it.")).to_be_visible()
    bob.open(f"/chat/{session_id}")
    expect(bob.page.get_by_role("heading", name="There is no such session")).to_be_visible()
    bob.allow("404")
    bob.close()


def test_a_session_of_ten_thousand_messages_opens_at_its_end(tab: Tab, web_dsn: str) -> None:
    session_id = uuid4()

    async def store() -> None:
        async with Rem.open(Settings(postgres=PostgresSettings(connection_string=web_dsn))) as rem:
            roles = (Role.USER, Role.ASSISTANT)
            messages = [NewMessage(role=roles[number % 2], content=f"Message {number}") for number in range(10_000)]
            await rem.for_user(tab.user or "").sessions.append(session_id, messages, create_session=True)

    run_async(store())
    sizes: list[int] = []

    def note_size(response: Response) -> None:
        if "/messages" in response.url:
            sizes.append(len(response.json()["data"]))

    tab.page.on("response", note_size)
    tab.open(f"/chat/{session_id}")
    expect(tab.page.get_by_text("Message 9999", exact=True)).to_be_in_viewport(timeout=SLOW_MS)
    assert sum(sizes) <= 200
    for _ in range(3):
        first = tab.page.get_by_role("article").first
        before = first.text_content() or "nothing"
        first.scroll_into_view_if_needed()
        expect(tab.page.get_by_role("article").first).not_to_contain_text(before, timeout=SLOW_MS)
    assert tab.page.get_by_role("article").count() > 120
    tab.page.get_by_role("button", name="To the end").click()
    expect(tab.page.get_by_text("Message 9999", exact=True)).to_be_in_viewport()


def test_older_messages_appear_when_a_page_begins_inside_a_turn(tab: Tab, web_dsn: str) -> None:
    session_id = uuid4()
    tool = NewMessage(role=Role.TOOL, tool_name="search_rem", tool_call_id="call")
    turns = [
        [
            NewMessage(role=Role.USER, content=f"Question {number}"),
            *[tool] * 5,
            NewMessage(role=Role.ASSISTANT, content=f"Answer {number}"),
        ]
        for number in range(30)
    ]

    async def store() -> None:
        async with Rem.open(Settings(postgres=PostgresSettings(connection_string=web_dsn))) as rem:
            messages = [message for turn in turns for message in turn]
            await rem.for_user(tab.user or "").sessions.append(session_id, messages, create_session=True)

    run_async(store())
    tab.open(f"/chat/{session_id}")
    articles = tab.page.get_by_role("article")
    expect(articles.last).to_contain_text("Answer 29", timeout=SLOW_MS)
    for _ in range(20):
        articles.first.scroll_into_view_if_needed()
        if articles.count() == 30:
            break
        tab.page.wait_for_timeout(500)
    expect(articles).to_have_count(30)
    for number in (0, 10, 20, 29):
        turn = articles.nth(number)
        expect(turn).to_contain_text(re.compile(rf"Question {number}\D"))
        expect(turn.get_by_role("button", name="Searched the memory")).to_have_count(5)
        expect(turn).to_contain_text(f"Answer {number}")


def test_an_answer_goes_on_while_another_session_is_open(tab: Tab) -> None:
    begin(tab, "Boats", "My sailing boat is in Aarhus.")
    tab.open("/chat")
    ask(tab, "Hello")
    session_id = get_session_id(tab)
    tab.page.get_by_role("link", name="Boats").click()
    expect(tab.page.get_by_role("article")).to_contain_text("My sailing boat")
    tab.page.get_by_role("link", name="Hello").click()
    expect(tab.page).to_have_url(f"{tab.address}/chat/{session_id}")
    expect(tab.page.get_by_role("article")).to_contain_text("Hello from the model.", timeout=SLOW_MS)


def test_two_tabs_write_in_the_same_session(tab: Tab, browser: Browser, script: ScriptedModel) -> None:
    script.script = lambda body: [f"Heard: {last_text(body)}"]
    tab.open("/chat")
    ask(tab, "From the first tab")
    wait_for_answer(tab)
    session_id = get_session_id(tab)
    second = Tab(browser, tab.address, tab.user, SCREENSHOTS)
    second.open(f"/chat/{session_id}")
    expect(second.page.get_by_role("article")).to_have_count(1)
    ask(second, "From the second tab")
    wait_for_answer(second)
    # The first tab does not know of the second question. Its own must not be taken for it.
    ask(tab, "Again from the first tab")
    wait_for_answer(tab)
    turns = tab.page.get_by_role("article")
    expect(turns).to_have_count(3)
    expect(turns.nth(1)).to_contain_text("Heard: From the second tab")
    expect(turns.nth(2)).to_contain_text("Heard: Again from the first tab")
    # Who comes back to a tab sees what was said meanwhile.
    second.page.evaluate("window.dispatchEvent(new Event('focus'))")
    expect(second.page.get_by_role("article")).to_have_count(3)
    second.close()


def test_a_draft_survives_another_page_and_another_session(tab: Tab) -> None:
    other = begin(tab, "Boats", "My sailing boat is in Aarhus.")
    tab.open("/chat")
    box = tab.page.get_by_role("textbox", name="Message")
    box.fill("Half a thought")
    tab.page.get_by_role("link", name="Memory").click()
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("Memory")
    tab.page.get_by_role("link", name="Chat", exact=True).click()
    expect(box).to_have_value("Half a thought")
    tab.page.get_by_role("link", name="Boats").click()
    tab.page.wait_for_url(f"**/chat/{other}")
    expect(box).to_have_value("")
    box.fill("More about the boat")
    tab.page.get_by_role("button", name="New session").first.click()
    expect(box).to_have_value("Half a thought")
    tab.page.get_by_role("link", name="Boats").click()
    expect(box).to_have_value("More about the boat")


def test_a_long_list_of_sessions_is_shown_in_parts(tab: Tab, with_rem: Callable[..., None]) -> None:
    async def store(rem: Rem) -> None:
        sessions = [Session(name=f"Session {number}") for number in range(450)]
        await rem.for_user(tab.user).store.upsert_many(sessions)

    with_rem(store)
    tab.open("/chat")
    rows = tab.page.get_by_role("navigation", name="Sessions").get_by_role("link")
    expect(rows).to_have_count(40)
    for count in (240, 440, 450):
        tab.page.get_by_role("button", name="Show more").click()
        expect(rows).to_have_count(count)
    expect(tab.page.get_by_role("button", name="Show more")).to_have_count(0)
