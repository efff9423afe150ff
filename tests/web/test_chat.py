"""Chat in the browser: ask, follow the answer, change it, rate it, speak, and add files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Locator, expect

from tests.scripted_model import Call, Pause, ScriptedModel, Step, has_result, last_text
from tests.web.browser import Tab
from tests.web.chat_steps import SLOW_MS, ask, choose_agent, get_session_id, wait_for_answer

SEARCH_CALL = Call("search_rem", {"query": 'SEARCH "boat"'})
HOSTILE = """<img src=x onerror="window.hacked=1"> <script>window.hacked=1</script>

[a link](javascript:window.hacked=1) and ![a picture](https://tracker.example/x.png) and [mail](mailto:a@example.com)

<a href="javascript:window.hacked=1" onclick="window.hacked=1">raw</a> &lt;b&gt; &amp; <b onmouseover=alert(1)>bold</b>
"""


def test_an_answer_is_markdown_and_stays_after_a_reload(tab: Tab, script: ScriptedModel) -> None:
    script.script = lambda _body: [
        "## Your boat\n\n",
        "It is **Marlin**",
        ", see [the log](https://example.com/log).\n",
    ]
    tab.open("/chat")
    ask(tab, "What is my boat called?")
    turn = wait_for_answer(tab)
    for _ in range(2):
        expect(turn.get_by_text("What is my boat called?")).to_be_visible()
        expect(turn.get_by_role("heading", name="Your boat")).to_be_visible()
        expect(turn.locator("strong")).to_have_text("Marlin")
        expect(turn.get_by_role("link", name="the log")).to_have_attribute("rel", "noopener noreferrer nofollow")
        expect(tab.page.get_by_role("link", name="What is my boat called?")).to_have_attribute("aria-current", "page")
        tab.page.reload()
    expect(tab.page).to_have_title("What is my boat called? · REM")


def test_stored_html_and_script_links_do_nothing(tab: Tab, script: ScriptedModel) -> None:
    script.script = lambda _body: [HOSTILE]
    tab.open("/chat")
    ask(tab, "<img src=x onerror='window.hacked=2'>")
    turn = wait_for_answer(tab)
    for _ in range(2):
        expect(turn.get_by_text("<script>window.hacked=1</script>")).to_be_visible()
        turn.get_by_text("a link").click()
        turn.get_by_text("raw").click()
        assert [link.get_attribute("href") for link in turn.get_by_role("link").all()] == [
            "https://tracker.example/x.png",
            "mailto:a@example.com",
        ]
        assert turn.locator("img, script").count() == 0
        assert tab.page.evaluate("window.hacked") is None
        tab.page.reload()
        expect(turn).to_be_visible()


def read_turn(turn: Locator) -> str:
    """Return all that a turn shows, but the time that is left for an answer."""
    return re.sub(r"\d+ seconds? left", "", turn.inner_text())


def test_everything_that_an_agent_does_is_shown_and_stays(tab: Tab) -> None:
    row = {"name": "sarah chen", "content": "Sarah leads **Project Atlas**."}
    httpx2.post(f"{tab.address}/api/v1/entities/resources", headers=tab.headers, json=row).raise_for_status()
    tab.open("/chat")
    choose_agent(tab, "simulator")
    ask(tab, "Show me everything")
    turn = wait_for_answer(tab)
    thoughts = turn.get_by_role("button", name="Thought in 4 steps")
    expect(turn.get_by_text("First the memory is searched")).not_to_be_visible()
    thoughts.click()
    expect(turn.get_by_text("First the memory is searched")).to_be_visible()
    search = turn.get_by_role("button", name="Searched the memory")
    search.click()
    expect(turn.get_by_text("3 rows of the memory:")).to_be_visible()
    shown = read_turn(turn)
    search.click()
    expect(turn.get_by_role("table")).to_contain_text("a bar or steps")
    tab.check_accessibility()
    tab.take_pictures("chat-answer")
    tab.page.reload()
    choose = tab.page.get_by_role("button", name="Agent simulator")
    expect(choose).to_be_visible()
    expect(turn.get_by_text("95% sure")).to_be_visible()
    thoughts.click()
    search.click()
    assert read_turn(turn) == shown
    turn.get_by_role("button", name="sarah-chen").first.click()
    drawer = tab.page.get_by_role("dialog", name="sarah chen")
    expect(drawer.locator("strong")).to_have_text("Project Atlas")
    tab.check_accessibility()
    tab.page.keyboard.press("Escape")
    expect(drawer).not_to_be_visible()


def test_tools_and_asked_agents_are_shown_while_they_run(tab: Tab, script: ScriptedModel) -> None:
    def play(body: dict[str, Any]) -> list[Step]:
        if last_text(body) == "Find the boat.":
            return [Pause(5), "The boat is Marlin."] if has_result(body) else [SEARCH_CALL]
        asked = {"agent_name": "rem", "input_text": "Find the boat."}
        return [Pause(1), "That is all."] if has_result(body) else [Call("ask_agent", asked, id="call_ask")]

    script.script = play
    tab.open("/chat")
    choose_agent(tab, "orchestrator")
    ask(tab, "Which boat do I have?")
    turn = tab.page.get_by_role("article").last
    asked = turn.get_by_role("button", name="Asked rem", exact=False)
    asked.click(timeout=SLOW_MS)
    search = turn.get_by_role("button", name="Searched the memory")
    search.click(timeout=SLOW_MS)
    expect(turn.get_by_text("Nothing was found.")).to_be_visible(timeout=SLOW_MS)
    expect(turn.get_by_role("progressbar", name="Asking rem")).to_be_visible()
    expect(tab.page.get_by_role("button", name="Stop")).to_be_visible()
    wait_for_answer(tab)
    expect(turn).to_contain_text("The boat is Marlin.")
    expect(turn.get_by_role("progressbar")).to_have_count(0)
    tab.page.reload()
    asked.click()
    expect(search).to_be_visible()


def test_an_answer_is_stopped_and_asked_again(tab: Tab, script: ScriptedModel) -> None:
    script.script = lambda _body: ["One ", "two ", Pause(20), "three"]
    tab.open("/chat")
    ask(tab, "Count")
    turn = tab.page.get_by_role("article").last
    expect(turn).to_contain_text("One two", timeout=SLOW_MS)
    tab.page.keyboard.press("Escape")
    expect(turn.get_by_text("Stopped")).to_be_visible()
    script.script = lambda _body: ["One two three."]
    turn.get_by_role("button", name="Answer again").click()
    expect(turn).to_contain_text("One two three.", timeout=SLOW_MS)
    expect(tab.page.get_by_role("article")).to_have_count(1)


def test_a_message_is_edited_and_sent_again(tab: Tab, script: ScriptedModel) -> None:
    script.script = lambda body: [f"You said {last_text(body)}."]
    tab.open("/chat")
    for text in ("first", "second", "third"):
        ask(tab, text)
        wait_for_answer(tab)
    session_id = get_session_id(tab)
    turns = tab.page.get_by_role("article")
    turns.nth(1).hover()
    turns.nth(1).get_by_role("button", name="Edit and send again").click()
    tab.page.get_by_role("textbox", name="Edit and send again").fill("changed")
    tab.page.keyboard.press("Enter")
    expect(turns).to_have_count(2)
    expect(turns.last).to_contain_text("You said changed.", timeout=SLOW_MS)
    wait_for_answer(tab)
    page = httpx2.get(f"{tab.address}/api/v1/sessions/{session_id}/messages", headers=tab.headers).json()
    assert [message["content"] for message in page["data"]] == [
        "first",
        "You said first.",
        "changed",
        "You said changed.",
    ]


def test_agent_and_model_are_chosen(tab: Tab, script: ScriptedModel) -> None:
    tab.open("/chat")
    choose_agent(tab, "rem:local")
    asked_before = len(script.requests)
    ask(tab, "Hello")
    turn = wait_for_answer(tab)
    expect(turn.get_by_text("rem · rem:local")).to_be_visible()
    assert len(script.requests) == asked_before


def test_an_answer_is_rated_with_a_comment(tab: Tab) -> None:
    tab.open("/chat")
    ask(tab, "Hello")
    turn = wait_for_answer(tab)
    turn.get_by_role("button", name="Bad answer").click()
    dialog = tab.page.get_by_role("dialog", name="What went wrong?")
    dialog.get_by_label("Comment").fill("Too short.")
    dialog.get_by_role("button", name="Rate").click()
    expect(dialog).not_to_be_visible()
    tab.page.reload()
    expect(turn.get_by_role("button", name="Bad answer")).to_have_attribute("aria-pressed", "true")
    rated = httpx2.get(f"{tab.address}/api/v1/feedback", headers=tab.headers).json()["data"]
    assert [(each["rating"], each["comment"]) for each in rated] == [(-1, "Too short.")]


def test_a_dropped_file_is_read_into_the_memory(tab: Tab, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"not a PDF")
    tab.open("/chat")
    dropped = tab.page.evaluate_handle(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File(["# Berth\\n\\nMarlin lies at berth 12."], "berth.md", { type: "text/markdown" }));
            return data;
        }"""
    )
    room = tab.page.get_by_role("heading", name="What should REM remember")
    room.dispatch_event("dragenter", {"dataTransfer": dropped})
    expect(tab.page.get_by_text("Drop the files")).to_be_visible()
    room.dispatch_event("drop", {"dataTransfer": dropped})
    expect(tab.page.get_by_text("Drop the files")).not_to_be_visible()
    files = tab.page.get_by_role("list", name="Added files")
    expect(files).to_contain_text("Read: 1 part", timeout=2 * SLOW_MS)
    tab.page.locator("input[type=file]").set_input_files(broken)
    expect(files.get_by_role("listitem").nth(1)).to_have_attribute("data-state", "failed", timeout=2 * SLOW_MS)
    stored = httpx2.get(f"{tab.address}/api/v1/files", headers=tab.headers).json()["data"]
    assert {file["name"]: file["status"] for file in stored}["berth.md"] == "completed"


def test_a_spoken_message_is_written_down_and_answered(tab: Tab, script: ScriptedModel) -> None:
    script.transcript = "What is my boat called?"
    script.script = lambda body: [f"Heard: {last_text(body)}"]
    tab.open("/chat")
    tab.page.get_by_role("button", name="Speak").click()
    expect(tab.page.get_by_text("Listening")).to_be_visible()
    tab.page.wait_for_timeout(600)
    tab.page.get_by_role("button", name="Send").click()
    turn = tab.page.get_by_role("article").last
    expect(turn).to_contain_text("Heard: What is my boat called?", timeout=SLOW_MS)
    expect(turn).to_contain_text("You: What is my boat called?")
    assert script.recordings[-1].startswith(b"RIFF")


def test_a_long_answer_draws_only_its_end_again(tab: Tab, script: ScriptedModel) -> None:
    paragraphs = [f"Paragraph {number} " + "with some words " * 30 for number in range(50)]
    script.script = lambda _body: [
        step for text in paragraphs for step in (text[:200], text[200:], "\n\n", Pause(0.01))
    ]
    tab.open("/chat")
    ask(tab, "Tell me a story")
    first = tab.page.locator("article p", has_text="Paragraph 0")
    expect(first).to_be_visible(timeout=SLOW_MS)
    tab.page.evaluate("window.first = document.querySelector('article p').firstChild")
    wait_for_answer(tab)
    expect(tab.page.locator("article p", has_text="Paragraph 49")).to_be_in_viewport()
    assert tab.page.evaluate("document.querySelector('article p').firstChild === window.first")
    words = tab.page.get_by_role("article").last.inner_text()
    assert len(re.findall(r"\w+", words)) > 4500


@pytest.mark.parametrize("size", ["phone", "desktop"])
def test_the_chat_works_with_the_keyboard_alone(tab: Tab, size: str) -> None:
    tab.resize(size)
    tab.open("/chat")
    expect(tab.page.get_by_role("textbox", name="Message")).to_be_focused()
    tab.page.keyboard.type("Hello")
    tab.page.keyboard.press("Enter")
    turn = wait_for_answer(tab)
    expect(turn).to_contain_text("Hello from the model.")
    turn.get_by_role("button", name="Good answer").focus()
    tab.page.keyboard.press("Enter")
    expect(tab.page.get_by_role("dialog", name="What was good?")).to_be_visible()
    tab.page.keyboard.press("Escape")
    expect(turn.get_by_role("button", name="Good answer")).to_be_focused()
    if size == "phone":
        tab.page.get_by_role("button", name="Show the sessions").focus()
        tab.page.keyboard.press("Enter")
        drawer = tab.page.get_by_role("dialog", name="Sessions")
        expect(drawer.get_by_role("link", name="Hello")).to_be_visible()
        tab.check_accessibility()
        tab.page.keyboard.press("Escape")
        expect(drawer).not_to_be_visible()
        assert tab.measure_overflow() <= 0
