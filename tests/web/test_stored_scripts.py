"""Stored texts of every kind are shown as text: scripts in file names, titles, SVG, cards and fields never run."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx2
from playwright.sync_api import expect

from tests.scripted_model import Call, ScriptedModel, has_result
from tests.web.browser import Tab
from tests.web.chat_steps import SLOW_MS, ask, wait_for_answer

SCRIPT = "<img src=x onerror=\"window.hacked=1\"><svg onload='window.hacked=1'><script>window.hacked=1</script>"
LINK = "javascript:window.hacked=1"
SVG = (
    f'<svg xmlns="http://www.w3.org/2000/svg" onload="window.hacked=1"><script>window.hacked=1</script>'
    f'<a href="{LINK}">unicorn</a></svg>'
)
PAGES = (
    *(
        "/memory",
        "/memory/resources/marker-note",
        "/memory/users/marker-person",
        "/memory/files",
        "/files",
        "/timeline",
    ),
    *("/graph?key=marker-note", "/chat", "/care", "/care/profile", "/care/storage"),
)


def post(tab: Tab, path: str, **request: Any) -> Any:
    """Store something, and return the answer."""
    answer = httpx2.post(f"{tab.address}/api/v1/{path}", headers=tab.headers, timeout=60, **request)
    assert answer.status_code < 300, answer.text
    return answer.json()


def store_everything(tab: Tab) -> None:
    """Store scripts in all texts that a page may show."""
    fields = {"tags": [SCRIPT], "metadata": {SCRIPT: SCRIPT, "site": LINK}}
    edge = {"dst": f"{SCRIPT} node", "rel_type": SCRIPT, "properties": {"note": SCRIPT}}
    note = {
        "name": "marker note",
        "content": f"# {SCRIPT}\n\n[x]({LINK}) ![y]({LINK})\n\n{SCRIPT} unicorn",
        "uri": LINK,
    }
    post(tab, "entities/resources", json={**note, **fields, "category": SCRIPT, "graph_edges": [edge]})
    post(tab, "entities/resources", json={"name": f"{SCRIPT} node", "content": f"unicorn {SCRIPT}"})
    person = {"name": "marker person", "email": '"<svg/onload=window.hacked=1>"@example.com', "role": SCRIPT}
    post(tab, "entities/users", json={**person, "summary": SCRIPT, "interests": [SCRIPT], **fields})
    moment = {"name": f"{SCRIPT} moment", "summary": f"unicorn {SCRIPT}", "starts_timestamp": "2026-01-02T10:00:00Z"}
    post(tab, "entities/moments", json={**moment, "present_persons": [SCRIPT], "topic_tags": [SCRIPT], **fields})
    post(tab, "sessions", json={"name": f"{SCRIPT} chat", "description": SCRIPT})
    files = {
        "<img src=x onerror=window.hacked=1>.md": (
            f"---\ntitle: '{SCRIPT.replace(chr(39), '')}'\n---\n# {SCRIPT}\n",
            "text/markdown",
        ),
        "drawing.svg": (SVG, "image/svg+xml"),
        "page.html": (f"<html><body>{SCRIPT}<a href='{LINK}'>unicorn</a></body></html>", "text/html"),
        "rows.csv": (f"name,{SCRIPT.replace(',', '')}\n{SCRIPT.replace(',', '')},1\n", "text/csv"),
    }
    uploads = [("files", (name, text.encode(), kind)) for name, (text, kind) in files.items()]
    post(tab, "files?wait=60", files=uploads)


def check_page(tab: Tab, path: str) -> None:
    """Fail if a script ran, or if an element could run one."""
    assert tab.page.evaluate("window.hacked === undefined"), path
    dangerous = "[href^='javascript' i], [src^='javascript' i], main script, [onerror], [onload], main img[src='x']"
    assert tab.page.locator(dangerous).count() == 0, path


def test_stored_scripts_do_not_run_on_any_page(tab: Tab) -> None:
    store_everything(tab)
    rows = httpx2.get(f"{tab.address}/api/v1/files", headers=tab.headers).json()["data"]
    assert len(rows) == 4
    for path in (*PAGES, *(f"/memory/files/{quote(row['name'], safe='')}" for row in rows)):
        tab.open(path)
        tab.page.wait_for_load_state("networkidle")
        check_page(tab, path)
    tab.open("/memory")
    box = tab.page.get_by_role("combobox", name="Search the memory")
    box.fill("unicorn")
    box.press("Enter")
    expect(tab.page.get_by_role("article").first).to_contain_text("unicorn")
    check_page(tab, "search results")
    tab.problems = [problem for problem in tab.problems if "404" not in problem]


def test_scripts_in_answers_and_cards_do_not_run(tab: Tab, script: ScriptedModel) -> None:
    card = {
        "id": f"card-{SCRIPT}",
        "prompt": f"{SCRIPT} [x]({LINK}) ![y]({LINK}) **Decide**",
        "inputs": [{"id": "place", "label": SCRIPT, "value": SCRIPT}],
        "actions": [
            {"id": "go", "title": f"Go {SCRIPT}"},
            {"type": "Action.OpenUrl", "id": "open", "title": "Open", "url": LINK},
        ],
    }
    script.script = lambda body: (
        [f"Chosen. {SCRIPT} [z]({LINK})"]
        if has_result(body)
        else [Call("action", {"type": "elicit", "payload": {"card": card}})]
    )
    tab.open("/chat")
    ask(tab, f"{SCRIPT} ask me")
    wait_for_answer(tab)
    expect(tab.page.get_by_role("article").last).to_contain_text("Chosen.", timeout=SLOW_MS)
    for _ in range(2):
        check_page(tab, "chat")
        tab.page.reload()
        expect(tab.page.get_by_role("article").last).to_contain_text("Chosen.", timeout=SLOW_MS)


def test_an_answer_of_the_api_is_never_a_page(tab: Tab) -> None:
    """Stored HTML and SVG come back as JSON that a browser does not take for a page."""
    post(tab, "entities/resources", json={"name": "raw", "content": SVG})
    for path in ("/api/v1/entities/resources/raw", "/api/v1/entities/resources", "/api/v1/files"):
        answer = httpx2.get(f"{tab.address}{path}", headers={**tab.headers, "Accept": "text/html,image/svg+xml"})
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.headers["x-content-type-options"] == "nosniff"
