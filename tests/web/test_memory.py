"""The memory page: search in plain words and by queries, look at an entity, change, delete, restore and forget it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from playwright.sync_api import expect

from tests.web.browser import Tab

NOTE = (
    "My colleague Bruno Keller <bruno.keller@acme.com> works at Acme. He moved to Berlin and looks after the billing "
    "database."
)


def post(tab: Tab, path: str, body: Any = None) -> Any:
    answer = httpx2.post(f"{tab.address}/api/v1/{path}", json=body, headers=tab.headers, timeout=60)
    assert answer.status_code < 300, answer.text
    return answer.json()


def add_note(tab: Tab, name: str = "Team notes", content: str = NOTE, **fields: Any) -> Any:
    return post(tab, "entities/resources", {"name": name, "content": content, **fields})


def search(tab: Tab, text: str) -> None:
    box = tab.page.get_by_role("combobox", name="Search the memory")
    box.fill(text)
    box.press("Enter")


def open_menu(tab: Tab, item: str) -> None:
    tab.page.get_by_role("button", name="More").click()
    tab.page.get_by_role("menuitem", name=item).click()


def test_plain_words_find_a_passage_with_its_reason(tab: Tab) -> None:
    add_note(tab, uri="https://example.com/team.md")
    add_note(tab, "Garden", "The tomatoes need water.")
    tab.open("/memory")
    search(tab, "who looks after the billing database?")
    card = tab.page.get_by_role("article").first
    expect(card.get_by_role("link", name="Team notes")).to_be_visible()
    expect(card.locator("mark", has_text="billing")).to_be_visible()
    expect(card).to_contain_text("today")
    expect(card).to_contain_text("words")
    expect(card.get_by_role("link", name="https://example.com/team.md")).to_be_visible()
    tab.page.get_by_text("How this was found").click()
    expect(tab.page.get_by_text(" ms").first).to_be_visible()
    tab.check_accessibility()
    tab.take_pictures("memory-results")
    tab.page.reload()
    expect(tab.page.get_by_role("article").first).to_contain_text("Team notes")


def test_a_query_is_completed_coloured_and_run(tab: Tab) -> None:
    add_note(tab)
    tab.open("/memory")
    box = tab.page.get_by_role("combobox", name="Search the memory")
    box.press_sequentially("LOO")
    expect(tab.page.get_by_role("option", name="LOOKUP")).to_be_visible()
    box.press("ArrowDown")
    box.press("Enter")
    expect(box).to_have_value("LOOKUP ")
    box.press_sequentially("team")
    expect(tab.page.get_by_role("option", name="team-notes resources")).to_be_visible()
    box.press("ArrowDown")
    box.press("Tab")
    expect(box).to_have_value("LOOKUP team-notes ")
    box.press_sequentially("FROM res")
    tab.page.get_by_role("option", name="resources").click()
    expect(box).to_have_value("LOOKUP team-notes FROM resources ")
    assert tab.page.locator("[class*=_verb_]").inner_text() == "LOOKUP"
    assert tab.page.locator("[class*=_table_]").inner_text() == "resources"
    box.press("Enter")
    expect(tab.page.get_by_role("article")).to_contain_text("Team notes")
    tab.page.get_by_text("How this was found").click()
    expect(tab.page.get_by_label("The parsed query")).to_contain_text('"LOOKUP"')


def test_a_mistake_is_marked_and_corrected_with_one_click(tab: Tab) -> None:
    add_note(tab)
    tab.open("/memory")
    search(tab, 'SERCH "billing database"')
    problem = tab.page.get_by_role("alert")
    expect(problem).to_contain_text("Unknown verb 'SERCH'")
    assert problem.locator("pre").inner_text() == 'SERCH "billing database"\n^'
    tab.check_accessibility()
    tab.take_pictures("memory-mistake")
    problem.get_by_role("button").click()
    expect(tab.page.get_by_role("article").first).to_contain_text("Team notes")
    search(tab, 'SEARCH "billing" LIMIT x')
    assert tab.page.get_by_role("alert").locator("pre").inner_text().endswith(f"\n{' ' * 23}^")
    tab.allow("400")


def test_sql_is_shown_as_a_table_and_traverse_with_its_path(tab: Tab) -> None:
    add_note(tab, graph_edges=[{"dst": "Garden", "rel_type": "about"}])
    add_note(tab, "Garden", "The tomatoes need water.")
    tab.open("/memory")
    search(tab, "SQL SELECT name FROM resources WHERE user_id IS NOT NULL ORDER BY name")
    expect(tab.page.get_by_role("cell")).to_have_text(["Garden", "Team notes"])
    search(tab, "TRAVERSE FROM team-notes")
    expect(tab.page.get_by_role("article")).to_contain_text("about: team-notes → garden")
    search(tab, 'FUZZY "gardn"')
    expect(tab.page.get_by_role("article")).to_contain_text("spelt alike")


def test_a_note_is_shown_as_markdown_or_as_it_was_written(tab: Tab) -> None:
    items = "- **buy** apples\n- [stay](javascript:alert(1))"
    note = f"---\ntitle: Plan\n---\n# Plan\n\n{items}\n\n<img src=x onerror=alert(1)>"
    add_note(tab, "Plan", note)
    tab.open("/memory/resources/plan")
    text = tab.page.get_by_role("region", name="Text")
    expect(text.get_by_role("heading", name="Plan", level=3)).to_be_visible()
    expect(text.locator("strong")).to_have_text("buy")
    expect(text.locator("pre")).to_have_text("title: Plan")
    expect(text.get_by_text("<img src=x onerror=alert(1)>")).to_be_visible()
    expect(text.locator("img, a")).to_have_count(0)
    tab.check_accessibility()
    tab.take_pictures("entity-markdown")
    text.get_by_role("button", name="Raw").click()
    expect(text.get_by_text("- **buy** apples")).to_be_visible()
    expect(text.get_by_role("heading", level=3)).to_have_count(0)


def test_code_is_shown_as_it_was_written(tab: Tab) -> None:
    add_note(tab, "Script", "# not a heading\nx = 2 * 3 * 4", uri="file:///work/script.py")
    tab.open("/memory/resources/script")
    text = tab.page.get_by_role("region", name="Text")
    expect(text.get_by_text("# not a heading")).to_be_visible()
    expect(text.get_by_role("button", name="Raw")).to_have_attribute("aria-pressed", "true")


def test_an_entity_shows_its_text_edges_statements_and_sources(tab: Tab, dream: Callable[[Tab], None]) -> None:
    add_note(tab)
    dream(tab)
    tab.open("/memory/ontologies/bruno-keller")
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("Bruno Keller")
    learnt = tab.page.get_by_role("region", name="What dreams have learnt")
    expect(learnt).to_contain_text("works at acme")
    expect(learnt).to_contain_text("% sure")
    expect(learnt).to_contain_text("since")
    edges = tab.page.get_by_role("region", name="Connections")
    expect(edges.get_by_role("link", name="Acme").first).to_be_visible()
    expect(edges.get_by_role("link", name="Team notes").first).to_be_visible()
    tab.check_accessibility()
    tab.take_pictures("memory-entity")
    learnt.get_by_role("link", name="team-notes").first.click()
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("Team notes")
    expect(tab.page).to_have_url(f"{tab.address}/memory/resources/team-notes")


def test_an_entity_is_edited(tab: Tab) -> None:
    add_note(tab)
    tab.open("/memory/resources/team-notes")
    tab.page.get_by_role("button", name="Edit").click()
    tab.page.get_by_label("content").fill("Bruno moved to Hamburg.")
    tab.page.get_by_label("tags").fill("team, people")
    tab.check_accessibility()
    tab.take_pictures("memory-edit")
    tab.page.get_by_role("button", name="Save").click()
    expect(tab.page.get_by_role("region", name="Text")).to_contain_text("Bruno moved to Hamburg.")
    expect(tab.page.get_by_role("region", name="Text")).to_contain_text("people")
    stored = httpx2.get(f"{tab.address}/api/v1/entities/resources/team-notes", headers=tab.headers).json()
    assert (stored["content"], stored["tags"]) == ("Bruno moved to Hamburg.", ["team", "people"])


def test_an_edit_does_not_overwrite_a_newer_one(tab: Tab) -> None:
    add_note(tab)
    tab.open("/memory/resources/team-notes")
    tab.page.get_by_role("button", name="Edit").click()
    tab.page.get_by_label("content").fill("Mine.")
    url = f"{tab.address}/api/v1/entities/resources/team-notes"
    httpx2.patch(url, json={"content": "Theirs."}, headers=tab.headers)
    tab.page.get_by_role("button", name="Save").click()
    expect(tab.page.get_by_role("alert")).to_contain_text("changed somewhere else")
    assert httpx2.get(url, headers=tab.headers).json()["content"] == "Theirs."
    tab.allow("412")


def test_an_entity_is_deleted_undone_and_restored_later(tab: Tab) -> None:
    add_note(tab)
    tab.open("/memory/resources/team-notes")
    open_menu(tab, "Delete")
    tab.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    tab.page.get_by_role("button", name="Undo").click()
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("Team notes")
    open_menu(tab, "Delete")
    tab.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    tab.page.get_by_role("link", name="Deleted things").click()
    expect(tab.page.get_by_role("heading", name="Team notes")).to_be_visible()
    tab.check_accessibility()
    tab.take_pictures("memory-deleted")
    tab.open("/memory/resources/team-notes")
    tab.page.get_by_role("button", name="Restore").click()
    expect(tab.page.get_by_role("region", name="Text")).to_contain_text("works at Acme")
    tab.allow("404")


def test_everything_about_a_person_is_forgotten_after_a_preview(tab: Tab, dream: Callable[[Tab], None]) -> None:
    add_note(tab)
    dream(tab)
    tab.open("/memory/ontologies/bruno-keller")
    open_menu(tab, "Forget everything about this")
    dialog = tab.page.get_by_role("dialog")
    expect(dialog).to_contain_text("Texts that mention it, and stay")
    forget = dialog.get_by_role("button", name="Forget for good")
    expect(forget).to_be_disabled()
    dialog.get_by_role("switch").click()
    expect(dialog).to_contain_text("Erased because they mention it")
    tab.check_accessibility()
    tab.take_pictures("memory-forget")
    # Something is stored after the preview: nothing goes without another look.
    add_note(tab, "Later", "Bruno Keller likes tea.")
    dialog.get_by_role("checkbox").check()
    forget.click()
    expect(tab.page.get_by_text("has changed since it was shown")).to_be_visible()
    expect(dialog).to_contain_text("likes tea")
    dialog.get_by_role("checkbox").check()
    forget.click()
    expect(tab.page.get_by_text("Bruno Keller is forgotten")).to_be_visible()
    assert post(tab, "query", {"query": 'SEARCH "Bruno Keller"'})["results"] == []
    tab.allow("409")


@pytest.mark.parametrize(
    "path", ["/memory/resources/{key}", "/memory/resources/{id}", "/memory/key/{key}", "/graph?key={key}"]
)
def test_an_entity_of_another_user_cannot_be_opened_by_its_address(tab: Tab, path: str) -> None:
    # Short: a long number may look like that of a card, which is masked.
    unique = uuid4().hex[:6]
    headers = {**tab.headers, "X-User-Id": f"owner-{unique}@example.com"}
    fields = {"name": f"Diary {unique}", "content": "vermilion73"}
    row = httpx2.post(f"{tab.address}/api/v1/entities/resources", json=fields, headers=headers).json()
    tab.open(path.format(**row))
    expect(tab.page.get_by_role("heading", name="There is nothing here")).to_be_visible()
    assert "vermilion73" not in tab.page.content()
    tab.problems = [problem for problem in tab.problems if "404" not in problem]


def test_stored_html_and_javascript_links_do_nothing(tab: Tab) -> None:
    attack = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script> unicorn"
    add_note(
        tab,
        "<b>Bold</b> note",
        attack,
        uri="javascript:document.title='owned'",
        metadata={"site": "javascript:alert(1)"},
    )
    tab.open("/memory")
    search(tab, "unicorn")
    expect(tab.page.get_by_role("link", name="<b>Bold</b> note")).to_be_visible()
    assert tab.page.locator("main a[href^='javascript']").count() == 0
    tab.page.get_by_role("link", name="<b>Bold</b> note").click()
    expect(tab.page.get_by_role("region", name="Text")).to_contain_text("<script>")
    assert tab.page.locator("main a[href^='javascript'], main img, main script").count() == 0
    assert tab.page.title() == "<b>Bold</b> note · REM"
