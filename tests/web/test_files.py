"""Files and jobs: upload with progress, follow the status, and try again what failed."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import httpx2
from playwright.sync_api import FilePayload, expect

from rem.app import Rem
from rem.context import resolve_user_id
from rem.jobs.queue import JobQueue
from rem.models.file import File, ProcessingStatus
from tests.web.browser import Tab

GUIDE = FilePayload(name="guide.md", mimeType="text/markdown", buffer=b"# Pruning guide\n\nCut apple trees in winter.")
BROKEN = FilePayload(name="broken.pdf", mimeType="application/pdf", buffer=b"%PDF-1.7 nothing")


def choose(tab: Tab, button: str, *files: FilePayload) -> None:
    with tab.page.expect_file_chooser() as choosing:
        tab.page.get_by_role("button", name=button).click()
    choosing.value.set_files(list(files))


def test_a_file_is_uploaded_read_found_deleted_and_brought_back(tab: Tab) -> None:
    tab.open("/files")
    expect(tab.page.get_by_role("heading", name="No files yet")).to_be_visible()
    tab.check_accessibility()
    tab.take_pictures("files-empty")
    choose(tab, "Choose files", GUIDE)
    row = tab.page.get_by_role("list", name="Files").get_by_role("listitem")
    expect(row).to_contain_text("done", timeout=60_000)
    expect(row).to_contain_text("1 part")
    row.get_by_role("button", name="Delete guide.md").click()
    tab.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(tab.page.get_by_role("heading", name="No files yet")).to_be_visible()
    tab.page.get_by_role("button", name="Undo").click()
    expect(row).to_contain_text("Pruning guide")
    row.get_by_role("link", name="Pruning guide").click()
    expect(tab.page.get_by_role("heading", level=1)).to_contain_text("guide")


def test_the_progress_of_an_upload_is_shown_and_it_can_be_cancelled(tab: Tab) -> None:
    tab.open("/files")
    # A slow line, so that the bar is seen.
    slow = tab.page.context.new_cdp_session(tab.page)
    line = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 40_000}
    slow.send("Network.emulateNetworkConditions", line)
    large = FilePayload(name="large.txt", mimeType="text/plain", buffer=b"word " * 200_000)
    choose(tab, "Choose files", large)
    bar = tab.page.get_by_role("progressbar", name="Upload of large.txt")
    expect(bar).to_be_visible()
    expect(tab.page.get_by_role("list", name="Uploads")).to_contain_text(re.compile(r"[1-9]\d? % of"), timeout=60_000)
    tab.take_pictures("files-upload")
    tab.page.get_by_role("button", name="Cancel the upload of large.txt").click()
    expect(bar).not_to_be_visible()
    assert httpx2.get(f"{tab.address}/api/v1/files", headers=tab.headers).json()["data"] == []


def test_an_upload_waits_while_the_server_takes_no_more_files(tab: Tab, with_rem: Callable[..., None]) -> None:
    payload = {"tenant_id": "default", "user_id": resolve_user_id(str(tab.user))}
    ids: list[int | None] = []

    async def fill(rem: Rem) -> None:
        jobs = JobQueue(rem.database)
        for _ in range(rem.settings.worker.max_waiting):
            ids.append(await jobs.enqueue("water-plants", payload, delay=timedelta(days=1)))  # noqa: PERF401

    async def empty(rem: Rem) -> None:
        await JobQueue(rem.database).cancel([job_id for job_id in ids if job_id is not None])

    with_rem(fill)
    tab.open("/files")
    choose(tab, "Choose files", GUIDE)
    expect(tab.page.get_by_role("list", name="Uploads")).to_contain_text("Waits until other files are read")
    tab.take_pictures("files-waiting")
    with_rem(empty)
    row = tab.page.get_by_role("list", name="Files").get_by_role("listitem")
    expect(row).to_contain_text("done", timeout=60_000)
    tab.allow("429")


def test_a_file_that_cannot_be_read_says_why_and_is_replaced(tab: Tab) -> None:
    tab.open("/files")
    choose(tab, "Choose files", BROKEN, GUIDE)
    rows = tab.page.get_by_role("list", name="Files").get_by_role("listitem")
    broken = rows.filter(has_text="broken.pdf")
    expect(broken).to_contain_text("failed", timeout=60_000)
    tab.page.get_by_role("button", name="Failed").click()
    expect(rows).to_have_count(1)
    tab.check_accessibility()
    tab.take_pictures("files-failed")
    tab.page.get_by_role("button", name="All", exact=True).click()
    # A text called .pdf could not be read either: a file of another format keeps its own name.
    choose(
        tab,
        "Choose it again",
        FilePayload(name="fixed.md", mimeType="text/markdown", buffer=b"# Now it works\n\nWell."),
    )
    expect(rows.filter(has_text="fixed.md")).to_contain_text("done", timeout=60_000)
    expect(broken).to_have_count(0)
    expect(rows).to_have_count(2)


def test_a_file_of_the_same_format_takes_the_place_of_a_failed_one_under_its_name(tab: Tab) -> None:
    tab.open("/files")
    choose(tab, "Choose files", FilePayload(name="empty.md", mimeType="text/markdown", buffer=b""))
    row = tab.page.get_by_role("list", name="Files").get_by_role("listitem")
    expect(row).to_contain_text("empty.md is empty.", timeout=60_000)
    choose(tab, "Choose it again", FilePayload(name="empty (1).MD", mimeType="text/markdown", buffer=b"Tea at five."))
    expect(row).to_contain_text("done", timeout=60_000)
    expect(row).to_contain_text("empty.md")
    expect(row).not_to_contain_text("(1)")


def test_an_address_that_the_server_may_not_fetch_is_refused_at_once(tab: Tab) -> None:
    tab.open("/files")
    tab.page.get_by_label("Or fetch").fill("http://127.0.0.1:1/secret.md")
    tab.page.get_by_role("button", name="Fetch", exact=True).click()
    expect(tab.page.get_by_text("is not in the public network")).to_be_visible()
    tab.allow("403")


def test_an_address_that_could_not_be_fetched_is_tried_again(tab: Tab, with_rem: Callable[..., None]) -> None:
    address = "http://nowhere.invalid/secret.md"

    async def store(rem: Rem) -> None:
        failed = File(name="secret.md", uri=address, processing_status=ProcessingStatus.FAILED)
        await rem.for_user(str(tab.user)).store.upsert(failed)

    with_rem(store)
    tab.open("/files")
    row = tab.page.get_by_role("list", name="Files").get_by_role("listitem")
    with tab.page.expect_response(lambda response: response.url.endswith("/files/uri")) as sent:
        row.get_by_role("button", name="Try again").click()
    assert sent.value.request.post_data_json == {"uri": address}
    assert sent.value.ok


def test_a_failed_job_is_retried(tab: Tab, with_rem: Callable[..., None]) -> None:
    async def store(rem: Rem) -> None:
        payload = {"tenant_id": "default", "user_id": resolve_user_id(str(tab.user))}
        job = await JobQueue(rem.database).enqueue("water-plants", payload, delay=timedelta(days=1))
        async with rem.database.connection() as connection:
            await connection.execute("UPDATE rem_jobs.jobs SET state = 'dead' WHERE id = $1", job)

    with_rem(store)
    tab.open("/files")
    jobs = tab.page.get_by_role("region", name="Background jobs")
    expect(jobs).to_contain_text("failed")
    jobs.get_by_role("button", name="Try again").click()
    expect(jobs.get_by_role("listitem")).to_contain_text("waiting")
    expect(jobs.get_by_role("button", name="Try again")).not_to_be_visible()
