"""The graph page: a neighbourhood that grows by clicks, filters, a list for the keyboard, and a picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
from playwright.sync_api import expect

from rem.app import Rem
from rem.models import Edge, Resource
from tests.web.browser import Tab

MANY = 2000


def add(tab: Tab, table: str, name: str, *edges: tuple[str, str], **fields: Any) -> None:
    body = {"name": name, "graph_edges": [{"dst": dst, "rel_type": relation} for relation, dst in edges], **fields}
    answer = httpx2.post(f"{tab.address}/api/v1/entities/{table}", json=body, headers=tab.headers, timeout=60)
    assert answer.status_code == 201, answer.text


def add_team(tab: Tab) -> None:
    add(tab, "users", "Ada Lind", ("leads", "Orchard"), ("knows", "Ben Holt"), summary="Leads the orchard.")
    add(tab, "users", "Ben Holt", ("wrote", "Pruning guide"))
    add(tab, "resources", "Orchard", content="A field of apple trees.")
    add(
        tab,
        "resources",
        "Pruning guide",
        ("about", "Orchard"),
        content="Cut in winter.",
        timestamp="2024-01-10T10:00:00Z",
    )


def pick(tab: Tab, text: str, option: str) -> None:
    box = tab.page.get_by_role("combobox", name="The key in the middle")
    box.fill(text)
    tab.page.get_by_role("option", name=option).click()


def click_node(tab: Tab, name: str) -> None:
    """Click a node in the drawing. A window that was just resized may still move it."""
    drawing = tab.page.get_by_role("img")
    chosen = tab.page.get_by_role("region", name="The chosen thing").get_by_role("heading")
    for _ in range(20):
        place = drawing.evaluate(
            "(box, name) => box._cyreg.cy.nodes().filter((node) => node.data('label') === name)[0].renderedPosition()",
            name,
        )
        drawing.click(position=place)
        tab.page.wait_for_timeout(300)
        if chosen.inner_text() == name:
            return
    expect(chosen).to_have_text(name)


def wait_for_nodes(tab: Tab, number: int) -> None:
    expect(tab.page.locator(f"[data-nodes='{number}']")).to_be_visible(timeout=60_000)


def test_a_neighbourhood_is_drawn_expanded_filtered_and_saved(tab: Tab, tmp_path: Path) -> None:
    add_team(tab)
    tab.open("/graph")
    expect(tab.page.get_by_role("link", name="Ada Lind")).to_be_visible()
    pick(tab, "ada", "ada-lind")
    wait_for_nodes(tab, 3)
    expect(tab.page.get_by_text("3 things, 2 connections.")).to_be_visible()
    chosen = tab.page.get_by_role("region", name="The chosen thing")
    expect(chosen).to_contain_text("Ada Lind")
    tab.check_accessibility()
    tab.take_pictures("graph-drawing")
    click_node(tab, "Ben Holt")
    expect(chosen).not_to_contain_text("Ada Lind")
    wait_for_nodes(tab, 4)
    with tab.page.expect_download() as downloading:
        tab.page.get_by_role("button", name="Save as picture").click()
    downloading.value.save_as(tmp_path / "graph.png")
    assert downloading.value.suggested_filename == "ada-lind.png"
    assert (tmp_path / "graph.png").read_bytes().startswith(b"\x89PNG")
    tab.page.get_by_label("Relation").select_option("leads")
    wait_for_nodes(tab, 2)
    tab.page.get_by_label("Relation").select_option("")
    tab.page.get_by_role("button", name="2", exact=True).click()
    wait_for_nodes(tab, 4)
    tab.page.get_by_label("Not before").fill("2025-01-01")
    wait_for_nodes(tab, 3)
    tab.page.get_by_label("Type").select_option("users")
    wait_for_nodes(tab, 2)
    tab.page.reload()
    wait_for_nodes(tab, 2)


def test_labels_do_not_cover_each_other(tab: Tab) -> None:
    names = [f"Notes of the orchard, part {number}" for number in range(14)]
    for name in names:
        add(tab, "resources", name)
    add(tab, "resources", "Orchard", *(("has_part", name) for name in names))
    tab.open("/graph?key=orchard")
    wait_for_nodes(tab, 15)
    boxes = tab.page.get_by_role("img").evaluate(
        "(box) => box._cyreg.cy.nodes().map((node) => node.boundingBox({ includeOverlays: false }))"
    )
    overlaps = [
        (one, other)
        for index, one in enumerate(boxes)
        for other in boxes[index + 1 :]
        if one["x1"] < other["x2"] and other["x1"] < one["x2"] and one["y1"] < other["y2"] and other["y1"] < one["y2"]
    ]
    assert overlaps == []


def test_the_list_shows_the_same_for_the_keyboard(tab: Tab) -> None:
    add_team(tab)
    tab.open("/graph?key=ada-lind&view=list")
    rows = tab.page.get_by_role("list", name="List").get_by_role("listitem")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("leads Orchard")
    tab.check_accessibility()
    tab.take_pictures("graph-list")
    tab.page.get_by_role("button", name="Show neighbours of Ben Holt").focus()
    tab.page.keyboard.press("Enter")
    expect(rows).to_have_count(4)
    expect(rows.last).to_contain_text("2 steps away")


def test_the_start_of_an_empty_memory_says_what_to_do(tab: Tab) -> None:
    tab.open("/graph")
    expect(tab.page.get_by_text("Nothing is stored yet")).to_be_visible()
    tab.check_accessibility()
    tab.take_pictures("graph-start")


def test_two_thousand_nodes_are_drawn_and_moved(tab: Tab, with_rem: Callable[..., None]) -> None:
    async def store(rem: Rem) -> None:
        hub = Edge(dst="Hub", rel_type="part_of")
        leaves = [Resource(name=f"Leaf {number}", graph_edges=[hub]) for number in range(MANY - 1)]
        await rem.for_user(tab.user).store.upsert_many([Resource(name="Hub", content="The middle."), *leaves])

    with_rem(store)
    tab.open("/graph?key=hub")
    wait_for_nodes(tab, MANY)
    expect(tab.page.get_by_text("2,000 things, 1,999 connections.")).to_be_visible()
    box = tab.page.get_by_role("img").bounding_box()
    assert box is not None
    before = tab.page.get_by_role("img").screenshot()
    tab.page.mouse.move(box["x"] + 60, box["y"] + 60)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + 360, box["y"] + 160, steps=10)
    tab.page.mouse.up()
    assert tab.page.get_by_role("img").screenshot() != before
    tab.resize("desktop")
    tab.take_pictures("graph-large")
