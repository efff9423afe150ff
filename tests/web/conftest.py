"""A real browser on a real server: `rem serve` on a database of its own, with a scripted model, for all tests."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import httpx2
import pytest

from rem.app import Rem
from tests.conftest import fresh_database, settings_for
from tests.forked_process import ForkedProcess
from tests.rem_command import output, start_rem
from tests.scripted_model import ScriptedModel, scripted_model
from tests.web.browser import Tab

if TYPE_CHECKING:
    from playwright.sync_api import Browser

T = TypeVar("T")
SCREENSHOTS = Path(__file__).with_name("screenshots")
CHROMIUM_ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"),
    *("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"),
)


MAX_LOG_CHARS = 4000
"""The part of a server's log that is shown when a test fails."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the page and the log of the server say when a test fails, and keep a picture of the page."""
    report = yield
    if report.when == "call" and report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, Tab):
                report.sections.append((f"page of {name}", value.describe(f"failed-{item.name}")))
            elif isinstance(value, LiveServer):
                log = value.log.read_text(encoding="utf-8", errors="replace")
                report.sections.append((f"log of {name}", log[-MAX_LOG_CHARS:]))
    return report


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in another thread: in this one, the browser's driver has a running event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class LiveServer:
    """`rem serve` that a test can kill and start again on the same port."""

    def __init__(self, settings: dict[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.log = Path(settings["REM_HOME"]) / "serve.log"
        self._settings = settings
        self._process: ForkedProcess | None = None

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        with self.log.open("ab") as log:
            self._process = start_rem("serve", "--port", str(self.port), settings=self._settings, stderr=log)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self.log.read_text(encoding="utf-8")
            try:
                if httpx2.get(f"{self.address}/health/ready", timeout=5).status_code == 200:
                    return
            except httpx2.TransportError:
                time.sleep(0.05)
        pytest.fail("rem serve did not become ready")

    def kill(self) -> None:
        """End the server at once, as a crash does."""
        if self._process is not None:
            self._process.kill_with_children()
            self._process.wait(timeout=60)
            self._process = None

    def stop(self) -> None:
        """End the server as Ctrl-C does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(timeout=60)
            self._process = None


@pytest.fixture(scope="session")
def web_dsn() -> Iterator[str]:
    """The database of the server."""
    database = fresh_database()
    yield run_async(database.__aenter__())
    run_async(database.__aexit__())


@pytest.fixture(scope="session")
def model() -> Iterator[ScriptedModel]:
    """The language model of the server; a test sets its `script`."""
    with scripted_model() as running:
        yield running


@pytest.fixture(scope="session")
def server_settings(web_dsn: str, model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of the server."""
    return {
        "REM_HOME": str(tmp_path_factory.mktemp("web-home")),
        "POSTGRES__CONNECTION_STRING": web_dsn,
        "LLM__BASE_URL": model.url,
        "LLM__OPENAI_API_KEY": "unused",
        "LLM__DEFAULT_MODEL": "openai:scripted",
    }


@pytest.fixture(scope="session")
def server(server_settings: dict[str, str]) -> Iterator[LiveServer]:
    """The server of all tests."""
    running = LiveServer(server_settings)
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def secured(server_settings: dict[str, str]) -> Iterator[LiveServer]:
    """The same database with authentication, and without a model."""
    settings = {name: value for name, value in server_settings.items() if not name.startswith("LLM__")}
    login = {"AUTH__ENABLED": "true", "AUTH__ALLOW_ANONYMOUS": "false", "AUTH__SESSION_SECRET": "s" * 32}
    # Another test uses up the usual limits of this address, which are counted in the database.
    limits = {f"RATE_LIMIT__{tier}": "100000/hour" for tier in ("ANONYMOUS", "FREE", "BASIC", "PRO")}
    running = LiveServer({**settings, **login, **limits})
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    from playwright.sync_api import expect, sync_playwright

    # A busy machine is slow; a test still ends as soon as the page is right.
    expect.set_options(timeout=20_000)
    path = shutil.which("chromium")
    assert path is not None, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def dream(server_settings: dict[str, str]) -> Callable[[Tab], None]:
    """Dream over the memory of a tab's user as at night, by rules: the scripted model knows nothing about notes."""
    settings = {name: value for name, value in server_settings.items() if not name.startswith("LLM__")}

    def run(tab: Tab) -> None:
        output("dreaming", "full", "--user", str(tab.user), settings=settings)

    return run


@pytest.fixture
def with_rem(web_dsn: str) -> Callable[[Callable[[Rem], Coroutine[Any, Any, T]]], T]:
    """Run something with the library on the server's database, to prepare what no request can."""
    settings = settings_for(web_dsn)

    async def open_and_run(work: Callable[[Rem], Coroutine[Any, Any, T]]) -> T:
        async with Rem.open(settings) as opened:
            return await work(opened)

    return lambda work: run_async(open_and_run(work))


@pytest.fixture
def script(model: ScriptedModel) -> Iterator[ScriptedModel]:
    """The model, which gets its usual script back after the test."""
    usual = model.script
    yield model
    model.script = usual


@pytest.fixture
def tab(browser: Browser, server: LiveServer, request: pytest.FixtureRequest) -> Iterator[Tab]:
    """A tab of a user of the test's own. At its end the page must have reported no error."""
    # Not the name of the test: a page shows it, and tests look for words.
    user = f"ada-{crc32(request.node.nodeid.encode()):08x}@example.com"
    opened = Tab(browser, server.address, user, SCREENSHOTS)
    yield opened
    opened.close()


@pytest.fixture
def signed_in(browser: Browser, secured: LiveServer) -> Iterator[Tab]:
    """A tab of the test user of the secured server, who is an administrator."""
    opened = Tab(browser, secured.address, None, SCREENSHOTS)
    opened.page.goto("/care/access")
    opened.page.get_by_role("button", name="Continue as the test user").click()
    opened.page.get_by_role("region", name="API keys").wait_for()
    opened.problems = [problem for problem in opened.problems if "401" not in problem]
    yield opened
    opened.close()
