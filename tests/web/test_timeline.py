"""The timeline: moments by day and week, people and topics, and dreams that can be undone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
from playwright.sync_api import expect

from tests.web.browser import Tab

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
MONDAY = NOON - timedelta(days=NOON.weekday())
NOTE = "My colleague Nadia Petrova <nadia.petrova@acme.com> moves billing to Postgres 18 in April."


def post(tab: Tab, path: str, body: Any) -> Any:
    answer = httpx2.post(f"{tab.address}/api/v1/{path}", json=body, headers=tab.headers, timeout=60)
    assert answer.status_code < 300, answer.text
    return answer.json()


def add_moment(tab: Tab, name: str, at: datetime, **fields: Any) -> None:
    times = {"starts_timestamp": at.isoformat(), "ends_timestamp": (at + timedelta(hours=1)).isoformat()}
    post(tab, "entities/moments", {"name": name, **times, **fields})


def test_moments_are_shown_by_week_and_day_with_people_and_topics(tab: Tab) -> None:
    add_moment(
        tab,
        "Planning the launch",
        MONDAY,
        summary="Nadia and Tom agreed on the fifth of May.",
        present_persons=["Nadia", "Tom"],
        topic_tags=["launch-plan"],
        emotion_tags=["confident"],
        moment_type="meeting",
    )
    add_moment(tab, "Walk in the woods", MONDAY + timedelta(days=1), present_persons=["Tom"], topic_tags=["nature"])
    add_moment(tab, "Budget review", MONDAY - timedelta(days=7), summary="Too much coffee.", present_persons=["Nadia"])
    tab.open("/timeline")
    main = tab.page.get_by_role("main")
    expect(main.get_by_role("link", name="Planning the launch")).to_be_visible()
    expect(main).to_contain_text("12:00 – 13:00")
    expect(main.get_by_role("link", name="Budget review")).not_to_be_visible()
    tab.check_accessibility()
    tab.take_pictures("timeline-week")
    main.get_by_role("region", name="People").get_by_role("button", name="Nadia").click()
    expect(main.get_by_role("link", name="Walk in the woods")).not_to_be_visible()
    tab.page.get_by_role("button", name="Show all").click()
    expect(main.get_by_role("link", name="Walk in the woods")).to_be_visible()
    main.get_by_role("button", name=": 1 moment").first.click()
    expect(main.get_by_role("link", name="Planning the launch")).to_be_visible()
    expect(main.get_by_role("link", name="Walk in the woods")).not_to_be_visible()
    main.get_by_role("button", name="Week", exact=True).click()
    main.get_by_role("button", name="The week before").click()
    expect(main.get_by_role("link", name="Budget review")).to_be_visible()
    main.get_by_role("button", name="The week before").click()
    main.get_by_role("button", name="Go to the latest moment").click()
    main.get_by_role("link", name="Walk in the woods").click()
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("Walk in the woods")


def test_an_empty_timeline_teaches(tab: Tab) -> None:
    tab.open("/timeline")
    expect(tab.page.get_by_role("heading", name="No moments yet")).to_be_visible()
    expect(tab.page.get_by_text("REM has not dreamt yet")).to_be_visible()
    tab.check_accessibility()
    tab.take_pictures("timeline-empty")


def test_the_last_dream_is_told_and_undone(tab: Tab, dream: Callable[[Tab], None]) -> None:
    post(tab, "entities/resources", {"name": "Note", "content": NOTE})
    dream(tab)
    tab.open("/timeline")
    panel = tab.page.get_by_role("region", name="Last dream")
    expect(panel).to_contain_text("Nadia Petrova")
    tab.check_accessibility()
    tab.take_pictures("timeline-dream")
    panel.get_by_role("button", name="Undo this dream").click()
    tab.page.get_by_role("dialog").get_by_role("button", name="Undo this dream").click()
    expect(tab.page.get_by_text("Undone:")).to_be_visible()
    expect(panel).to_contain_text("undone")
    url = f"{tab.address}/api/v1/entities/ontologies/nadia-petrova"
    assert httpx2.get(url, headers=tab.headers).status_code == 404


def test_a_dream_is_started_by_hand(signed_in: Tab) -> None:
    page = signed_in.page
    token = httpx2.get(f"{signed_in.address}/api/dev/token").json()["token"]
    body = {"name": "Note", "content": NOTE}
    headers = {"Authorization": f"Bearer {token}"}
    httpx2.post(f"{signed_in.address}/api/v1/entities/resources", json=body, headers=headers).raise_for_status()
    page.get_by_role("link", name="Timeline").click()
    page.get_by_role("button", name="Dream now").click()
    expect(page.get_by_role("region", name="Last dream")).to_contain_text("Nadia Petrova", timeout=60_000)
    page.get_by_role("button", name="Dream now").click()
    expect(page.get_by_text("There was nothing new to dream about.")).to_be_visible(timeout=60_000)
