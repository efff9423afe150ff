"""Cards of agents and requests for consent in the chat."""

from __future__ import annotations

from typing import Any

import httpx2
from playwright.sync_api import expect

from tests.api.chat.test_approvals import AGENT as CAREFUL
from tests.scripted_model import Call, Script, ScriptedModel, Step, has_result, last_text
from tests.web.browser import Tab
from tests.web.chat_steps import SLOW_MS, ask, choose_agent, get_session_id, wait_for_answer


def show_card(card: dict[str, Any]) -> Script:
    """Return a script that shows a card, and repeats what the person answers."""

    def play(body: dict[str, Any]) -> list[Step]:
        if last_text(body) != "Ask me":
            return [f"You answered: {last_text(body)}"]
        return (
            ["Please decide."] if has_result(body) else [Call("action", {"type": "elicit", "payload": {"card": card}})]
        )

    return play


def test_a_card_is_answered_in_the_text(tab: Tab) -> None:
    tab.open("/chat")
    choose_agent(tab, "simulator")
    ask(tab, "Show me a card")
    wait_for_answer(tab)
    card = tab.page.get_by_role("region", name="A question to you")
    expect(card.get_by_text("seconds left")).to_be_visible()
    expect(card.get_by_role("link", name="Read more")).to_have_attribute("href", "https://example.com/docs")
    card.get_by_label("Anything to add?").fill("It was clear.")
    card.get_by_label("Which part is this about?").select_option("The text")
    card.get_by_label("You may ask me about it").check()
    card.get_by_role("button", name="Yes").click()
    wait_for_answer(tab)
    for _ in range(2):
        sent = tab.page.get_by_role("article").nth(1)
        expect(sent).to_contain_text("You: Yes")
        expect(sent).to_contain_text("Anything to add?: It was clear.")
        expect(card.first).to_have_attribute("data-state", "answered")
        expect(card.first.get_by_role("button", name="Yes")).to_have_count(0)
        tab.page.reload()


def test_a_card_in_a_dialog_has_all_kinds_of_buttons_and_inputs(tab: Tab, script: ScriptedModel) -> None:
    details = {
        "id": "more",
        "prompt": "Where should the copy go?",
        "inputs": [{"id": "place", "label": "Place", "value": "attic"}],
        "actions": [{"id": "archive", "title": "Archive", "style": "primary"}],
    }
    card = {
        "id": "delete-1",
        "prompt": "Delete **the log**?",
        "display_style": "modal",
        "inputs": [{"id": "reason", "label": "Reason", "is_required": True}],
        "actions": [
            {"id": "delete", "title": "Delete", "style": "destructive"},
            {"id": "cancel", "title": "Cancel it", "style": "secondary"},
            {"type": "Action.ShowCard", "id": "show", "title": "Archive instead", "card": details},
        ],
    }
    script.script = show_card(card)
    tab.open("/chat")
    ask(tab, "Ask me")
    dialog = tab.page.get_by_role("dialog", name="A question to you")
    expect(dialog.locator("strong")).to_have_text("the log", timeout=SLOW_MS)
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_text("Fill this in.")).to_be_visible()
    tab.check_accessibility()
    tab.take_pictures("chat-card")
    tab.page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    tab.page.reload()
    tab.page.get_by_role("region", name="A question to you").get_by_role("button", name="Answer").click()
    dialog.get_by_label("Reason").fill("It is a copy.")
    dialog.get_by_role("button", name="Archive instead").click()
    dialog.get_by_label("Place").fill("cellar")
    dialog.get_by_role("button", name="Archive", exact=True).click()
    wait_for_answer(tab)
    answer = tab.page.get_by_role("article").last
    expect(answer).to_contain_text("You answered: Archive")
    expect(answer).to_contain_text("Place: cellar")
    session = httpx2.get(f"{tab.address}/api/v1/sessions/{get_session_id(tab)}/messages", headers=tab.headers).json()
    submitted = [row["metadata"]["action_submit"] for row in session["data"] if "action_submit" in row["metadata"]]
    assert submitted == [
        {
            "card_id": "delete-1",
            "action_id": "archive",
            "data": {},
            "inputs": {"reason": "It is a copy.", "place": "cellar"},
        }
    ]


def test_a_card_at_the_side_ends_with_its_time(tab: Tab, script: ScriptedModel) -> None:
    script.script = show_card(
        {
            "id": "quick",
            "prompt": "Quick?",
            "display_style": "sidebar",
            "timeout_ms": 4000,
            "actions": [{"id": "go", "title": "Go"}],
        }
    )
    tab.open("/chat")
    ask(tab, "Ask me")
    expect(tab.page.get_by_role("dialog").get_by_role("button", name="Go")).to_be_visible(timeout=SLOW_MS)
    card = tab.page.locator("section[data-state]")
    expect(card).to_have_attribute("data-state", "over", timeout=SLOW_MS)
    expect(tab.page.get_by_role("dialog")).to_have_count(0)
    expect(card.get_by_text("The time to answer is over")).to_be_visible()


def test_an_irreversible_action_waits_for_consent(tab: Tab) -> None:
    note = {"name": "boat code", "content": "The code word of my boat is Albatross."}
    httpx2.post(f"{tab.address}/api/v1/entities/resources", headers=tab.headers, json=note).raise_for_status()
    tab.open("/chat")
    choose_agent(tab, "rem:local")
    ask(tab, "Forget boat code")
    dialog = tab.page.get_by_role("dialog", name="This needs your consent")
    expect(dialog).to_contain_text("boat-code", timeout=SLOW_MS)
    tab.check_accessibility()
    tab.take_pictures("chat-consent")
    path = f"{tab.address}/api/v1/entities/resources/boat-code"
    assert httpx2.get(path, headers=tab.headers).status_code == 200
    dialog.get_by_role("button", name="Approve", exact=True).click()
    wait_for_answer(tab)
    expect(tab.page.get_by_role("article").last).to_contain_text("Forgotten: 1 text erased for good")
    # The request itself named it.
    expect(tab.page.get_by_text("Albatross")).to_have_count(0)
    assert httpx2.get(path, headers=tab.headers).status_code == 404


def test_a_message_answers_a_request_for_consent(tab: Tab) -> None:
    tab.open("/chat")
    choose_agent(tab, "rem:local")
    ask(tab, "Remember that my flight to Oslo is SK1425.")
    wait_for_answer(tab)
    ask(tab, "Correct: my flight to Oslo is SK1427")
    tab.page.get_by_role("dialog").get_by_role("button", name="Close").click(timeout=SLOW_MS)
    card = tab.page.get_by_role("region", name="This needs your consent")
    expect(card).to_have_attribute("data-state", "open")
    ask(tab, "yes")
    wait_for_answer(tab)
    expect(card).to_have_attribute("data-state", "answered")
    expect(card.get_by_role("button", name="Answer")).to_have_count(0)


def test_arguments_are_edited_before_consent_and_another_call_is_rejected(tab: Tab, script: ScriptedModel) -> None:
    agents = f"{tab.address}/api/v1/agents"
    headers = {**tab.headers, "Content-Type": "application/yaml"}
    httpx2.post(agents, headers=headers, content=CAREFUL.encode()).raise_for_status()

    def play(body: dict[str, Any]) -> list[Step]:
        if has_result(body):
            return [f"Result: {body['messages'][-1]['content']}"]
        return [Call("remember", {"text": last_text(body)}, id="call_keep")]

    script.script = play
    tab.open("/chat")
    choose_agent(tab, "careful")
    ask(tab, "My flight is SK1425.")
    wait_for_answer(tab)
    card = tab.page.get_by_role("region", name="This needs your consent")
    card.get_by_role("button", name="Edit").click()
    card.get_by_label("Arguments, as JSON").fill('{"text": "My flight is SK1427."}')
    tab.take_pictures("chat-edit")
    card.get_by_role("button", name="Approve with these arguments").click()
    wait_for_answer(tab)
    ask(tab, "My hotel is the Ritz.")
    wait_for_answer(tab)
    card.last.get_by_label("Reason").fill("Not so loud.")
    card.last.get_by_role("button", name="Reject").click()
    wait_for_answer(tab)
    expect(tab.page.get_by_role("article").last).to_contain_text("rejected")
    tab.page.reload()
    expect(card.first.get_by_text("Approved", exact=True)).to_be_visible()
    expect(card.last.get_by_text("Rejected", exact=True)).to_be_visible()
    notes = httpx2.get(f"{tab.address}/api/v1/entities/resources", headers=tab.headers).json()["data"]
    assert [note["content"] for note in notes] == ["My flight is SK1427."]
