"""A tab of the browser, with what tests of the web interface check on every page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from tests.rem_command import REPOSITORY

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Request

AXE = REPOSITORY / "web" / "node_modules" / "axe-core" / "axe.min.js"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SIZES = {"phone": (320, 640), "tablet": (768, 1024), "desktop": (1440, 900)}


class Tab:
    """A page of the interface in the browser, opened by one user. Errors of the page fail the test at its end."""

    def __init__(
        self, browser: Browser, address: str, user: str | None, screenshots: Path, tenant: str = "default"
    ) -> None:
        self.address = address
        self.user = user
        self.tenant = tenant
        self.problems: list[str] = []
        self._screenshots = screenshots
        self._context = browser.new_context(
            base_url=address, viewport={"width": 1280, "height": 800}, permissions=["clipboard-read", "clipboard-write"]
        )
        self._context.set_default_timeout(10_000)
        if user is not None:
            names = json.dumps(json.dumps({"user": user, "tenant": tenant}))
            self._context.add_init_script(
                f"localStorage.getItem('rem.identity') || localStorage.setItem('rem.identity', {names})"
            )
        self.page = self._context.new_page()
        self.page.on("console", self._note_console)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("request", self._note_request)

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the user, to prepare and check things without the page."""
        return {"X-User-Id": self.user or "", "X-Tenant-Id": self.tenant}

    def open(self, path: str) -> None:
        """Load a page of the interface, and wait until it is there."""
        self.page.goto(path)
        self.page.get_by_role("main").wait_for()

    def resize(self, size: str) -> None:
        """Make the window as large as a device."""
        width, height = SIZES[size]
        self.page.set_viewport_size({"width": width, "height": height})
        # The browser draws the page anew before it is measured.
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def take_pictures(self, name: str) -> None:
        """Keep pictures of the page in all sizes, light and dark; they must not scroll sideways."""
        self._screenshots.mkdir(exist_ok=True)
        for size in SIZES:
            self.resize(size)
            assert self.measure_overflow() <= 0, f"{name} scrolls sideways at {size}: {self._list_wide()}"
            for scheme in SCHEMES:
                self._set_scheme(scheme)
                self.page.screenshot(path=self._screenshots / f"{name}-{size}-{scheme}.png")
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size({"width": 1280, "height": 800})

    def _set_scheme(self, scheme: Literal["light", "dark"]) -> None:
        """Change the theme, and wait until it is drawn."""
        self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def measure_overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        wider: int = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        return wider

    def _list_wide(self) -> list[str]:
        """Return the elements that reach beyond the right edge of the window."""
        wide: list[str] = self.page.evaluate(
            """() => [...document.querySelectorAll("*")]
                .filter((element) => element.getBoundingClientRect().right > window.innerWidth + 1)
                .map((element) => `${element.tagName} ${element.className}`)"""
        )
        return wide[:10]

    def check_accessibility(self) -> None:
        """Fail if axe finds something serious on the page, in the light or the dark theme."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        for scheme in SCHEMES:
            self._set_scheme(scheme)
            found: list[dict[str, Any]] = self.page.evaluate(
                "axe.run(document, {resultTypes: ['violations']}).then((result) => result.violations)"
            )
            serious = [
                f"{scheme}: {rule['id']} {node['target']}: {node.get('failureSummary', '')}"
                for rule in found
                if rule["impact"] in ("serious", "critical")
                for node in rule["nodes"]
            ]
            assert serious == [], "\n".join(serious)
        self.page.emulate_media(color_scheme="light")

    def describe(self, picture: str) -> str:
        """Return the address, the problems and the text of the page, and keep a picture of it."""
        from playwright.sync_api import Error

        try:
            self._screenshots.mkdir(exist_ok=True)
            self.page.screenshot(path=self._screenshots / f"{picture}.png")
            text = self.page.evaluate("document.body.innerText")
        except Error as error:
            text = f"(the page does not answer: {error})"
        return "\n".join([self.page.url, *self.problems, text])

    def allow(self, part: str) -> None:
        """Take a problem that the test caused itself, and expect it: a text that all such messages contain."""
        assert any(part in problem for problem in self.problems), f"no problem with {part!r}: {self.problems}"
        self.problems = [problem for problem in self.problems if part not in problem]

    def close(self) -> None:
        """Close the tab, and fail if the page had problems."""
        self._context.close()
        assert not self.problems, "\n".join(self.problems)

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def _note_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https") and not request.url.startswith(self.address):
            self.problems.append(f"request to another server: {request.url}")
