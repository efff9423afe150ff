"""Measure the web interface in Chromium: first load, a long answer, a long session, a large graph.

A busy machine lengthens every task of the browser, so tasks count by the processor time that the page's main thread
used. The longest time by the clock is given beside it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from bench.measure import Result, median, print_progress
from bench.model_server import serve_model
from bench.rem_server import serve_rem
from rem import NewMessage, Rem, Role, Settings
from rem.models import Edge, Resource

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

ANSWER_WORDS = 5_000
SESSION_MESSAGES = 10_000
GRAPH_NODES = 2_000
SHORT_SESSION_MESSAGES = 10
ROUNDS = 5
MAX_FIRST_LOAD_KB = 300
MAX_TASK_MS = 100
MAX_OPEN_SECONDS = 1.0
MAX_FRAME_MS = 16.7
"""60 pictures a second."""
MAX_SLOWER_THAN_SHORT = 1.5
"""How much longer a long session may take to open than a short one."""
USER = "bench@example.com"
END = "The end of the answer."
LAST_MESSAGE = "The last message."
TIMEOUT_MS = 180_000
_CHROMIUM_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")
_TASK = "ThreadControllerImpl::RunTask"
_TRACED = ["toplevel", "disabled-by-default-devtools.timeline"]
_CLOCK = """(text) => new Promise((done) => {
  const look = () => document.body?.textContent.includes(text) ? done(performance.now()) : requestAnimationFrame(look);
  look();
})"""


async def run(
    home: Path,
    answer_words: int = ANSWER_WORDS,
    session_messages: int = SESSION_MESSAGES,
    graph_nodes: int = GRAPH_NODES,
) -> Result:
    """Measure the page of one user, with a model that streams a long Markdown text."""
    from playwright.async_api import async_playwright

    chromium = shutil.which("chromium")
    assert chromium is not None, "this benchmark needs Chromium: apt-get install chromium"
    result = Result("web")
    async with Rem.open(Settings(rem_home=home)) as rem:
        sessions = [await _store_session(rem, size) for size in (SHORT_SESSION_MESSAGES, session_messages)]
        await _store_graph(rem, graph_nodes)
        answer = home / "answer.md"
        answer.write_text(_write_answer(answer_words), encoding="utf-8")
        with (
            serve_model(answer) as model,
            serve_rem(home, {"LLM__BASE_URL": model, "LLM__DEFAULT_MODEL": "openai:bench"}) as address,
        ):
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=chromium, args=_CHROMIUM_ARGUMENTS)
                page = await _open_page(browser, address)
                await _measure_first_load(result, page)
                await _measure_answer(result, browser, page, answer_words)
                await _measure_sessions(result, page, sessions, session_messages)
                await _measure_graph(result, browser, page, graph_nodes)
                await browser.close()
    return result


async def _store_session(rem: Rem, size: int) -> UUID:
    memory, session_id = rem.for_user(USER).sessions, uuid4()
    for first in range(0, size, 500):
        numbers = range(first, min(first + 500, size))
        messages = [
            NewMessage(
                role=Role.ASSISTANT if number % 2 else Role.USER,
                content=LAST_MESSAGE if number == size - 1 else f"Message {number}: the plan for the harbour. " * 4,
            )
            for number in numbers
        ]
        await memory.append(session_id, messages, create_session=True)
    return session_id


async def _store_graph(rem: Rem, nodes: int) -> None:
    """Store a hub with branches of 20, each with leaves of its own."""
    rows = [Resource(name="Hub", content="The middle.")]
    for number in range(nodes - 1):
        parent = "Hub" if number < 20 else f"Node {number % 20}"
        rows.append(Resource(name=f"Node {number}", graph_edges=[Edge(dst=parent, rel_type="part_of")]))
    await rem.for_user(USER).store.upsert_many(rows)


def _write_answer(words: int) -> str:
    """Return a text with headings, lists, code and a table."""
    sentence = "The **harbour** has `twelve` berths and a [plan](https://example.com) for the _ferry_ of the island. "
    section = (
        "## A part of the answer\n\n" + sentence * 6 + "\n\n" + "".join(f"- {sentence}\n" for _ in range(6)) + "\n"
        "```python\nfor berth in harbour:\n    print(berth)\n```\n\n"
        "| berth | ship |\n| --- | --- |\n" + "| one | two |\n" * 10 + "\n"
    )
    text = section * (words // len(section.split()) + 1)
    return " ".join(text.split(" ")[:words]) + f"\n\n{END}"


async def _open_page(browser: Browser, address: str) -> Page:
    context = await browser.new_context(base_url=address, viewport={"width": 1280, "height": 800})
    context.set_default_timeout(TIMEOUT_MS)
    identity = json.dumps(json.dumps({"user": USER, "tenant": "default"}))
    await context.add_init_script(f"localStorage.setItem('rem.identity', {identity})")
    return await context.new_page()


async def _measure_first_load(result: Result, page: Page) -> None:
    await page.goto("/")
    await page.get_by_role("textbox").first.wait_for()
    await page.wait_for_load_state("networkidle")
    sizes: dict[str, int] = await page.evaluate(
        """() => Object.fromEntries(performance.getEntriesByType("resource")
            .concat(performance.getEntriesByType("navigation"))
            .filter((entry) => !entry.name.includes("/api/"))
            .map((entry) => [new URL(entry.name).pathname, entry.encodedBodySize]))"""
    )
    total = sum(sizes.values()) / 1000
    result.figures["first load, kB"] = round(total, 1)
    result.figures["first load, files"] = len(sizes)
    print_progress(f"web, first load: {total:.1f} kB in {len(sizes)} files")
    result.check("first load, compressed kB", total, MAX_FIRST_LOAD_KB)


async def _measure_answer(result: Result, browser: Browser, page: Page, words: int) -> None:
    async def ask() -> None:
        await page.get_by_role("textbox", name="Message").fill("Tell me everything.")
        await page.keyboard.press("Enter")
        await page.get_by_text(END).wait_for()

    await page.goto("/chat")
    tasks = await _trace(browser, page, ask)
    what = f"answer of {words:,} words"
    figures = _report_tasks(result, what, tasks)
    result.check(
        f"{what}: longest task, ms of processor time", figures["longest task, ms of processor time"], MAX_TASK_MS
    )


async def _measure_sessions(result: Result, page: Page, sessions: list[UUID], messages: int) -> None:
    """Open a short and a long session in turns."""
    times: dict[UUID, list[float]] = {session: [] for session in sessions}
    for number in range(ROUNDS + 1):
        for session in sessions:
            await page.goto(f"/chat/{session}", wait_until="commit")
            ready: float = await page.evaluate(_CLOCK, LAST_MESSAGE)
            if number > 0:
                times[session].append(ready / 1000)
    short, long = (median(times[session]) for session in sessions)
    figures = {f"{SHORT_SESSION_MESSAGES} messages": round(short, 3), f"{messages:,} messages": round(long, 3)}
    result.figures["open a session, seconds"] = figures
    print_progress(f"web, open a session: {figures}")
    result.check(f"open a session of {messages:,} messages, seconds", long, MAX_OPEN_SECONDS)
    result.check("… against one of 10 messages", long / short, MAX_SLOWER_THAN_SHORT)


async def _measure_graph(result: Result, browser: Browser, page: Page, nodes: int) -> None:
    async def move() -> None:
        box = await page.get_by_role("img").bounding_box()
        assert box is not None
        left, top = box["x"] + 40, box["y"] + 40
        for number in range(4):
            await page.mouse.move(left, top)
            await page.mouse.down()
            await page.mouse.move(left + 300, top + 150 - 20 * number, steps=30)
            await page.mouse.up()
        for number in range(20):
            await page.mouse.wheel(0, -100 if number < 10 else 100)
            await page.wait_for_timeout(50)

    await page.goto("/graph?key=hub&depth=2")
    await page.locator(f"[data-nodes='{nodes}']").wait_for()
    await page.wait_for_timeout(1000)
    tasks = await _trace(browser, page, move)
    what = f"move a graph of {nodes:,} nodes"
    figures = _report_tasks(result, what, tasks)
    result.check(f"{what}: 99 of 100 tasks, ms of processor time", figures["99 of 100 tasks below, ms"], MAX_FRAME_MS)


async def _trace(browser: Browser, page: Page, work: Callable[[], Awaitable[None]]) -> list[dict[str, float]]:
    """Do something on a page, and return the time of each task of its main thread in milliseconds."""
    await browser.start_tracing(page=page, categories=_TRACED)
    await work()
    events: list[dict[str, Any]] = json.loads(await browser.stop_tracing())["traceEvents"]
    names = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events if event.get("name") == "thread_name"
    }
    tasks = [
        (event["pid"], {"cpu": event.get("tdur", 0) / 1000, "clock": event["dur"] / 1000})
        for event in events
        if event.get("name") == _TASK
        and event.get("ph") == "X"
        and names.get((event["pid"], event["tid"])) == "CrRendererMain"
    ]
    # Of several renderers, the one of the page did most.
    work_by_process: dict[int, float] = {}
    for process, task in tasks:
        work_by_process[process] = work_by_process.get(process, 0) + task["cpu"]
    busiest = max(work_by_process, key=lambda process: work_by_process[process])
    return [task for process, task in tasks if process == busiest]


def _report_tasks(result: Result, what: str, tasks: list[dict[str, float]]) -> dict[str, float]:
    """Add the figures of the tasks to the result, and return them."""
    used = sorted(task["cpu"] for task in tasks)
    figures = {
        "tasks": len(tasks),
        "processor time of all, ms": round(sum(used), 1),
        "99 of 100 tasks below, ms": round(used[int(len(used) * 0.99)], 1),
        "longest task, ms of processor time": round(used[-1], 1),
        "longest task, ms by the clock": round(max(task["clock"] for task in tasks), 1),
    }
    result.figures[what] = figures
    print_progress(f"web, {what}: {figures}")
    return figures
