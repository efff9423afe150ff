"""What the chat prints of an answer, without a model: events go to a screen on a terminal in memory."""

from __future__ import annotations

import io
import re
import threading

import pytest
from rich.console import ConsoleRenderable, RenderHook

from rem.cli.chat.screen import LockedConsole, Screen
from rem.events import AnyEvent, MetadataEvent, ProgressEvent, TextEvent, ToolCallEvent

KEY = "session-550e8400-e29b-41d4-a716-446655440000-msg-2"
SHOWN_KEY = "550e…-msg-2"


class _DrawInBetween(RenderHook):
    """Draws the line below the answer when a text is about to be printed, from another thread."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        view = self.screen._view
        if view is not None and threading.current_thread() is threading.main_thread():
            drawing = threading.Thread(target=view.draw)
            drawing.start()
            drawing.join(timeout=0.3)
        return renderables


def _open_screen() -> tuple[Screen, io.StringIO]:
    file = io.StringIO()
    return Screen(LockedConsole(file=file, force_terminal=True, width=80, color_system=None)), file


def _show(*events: AnyEvent) -> str:
    screen, file = _open_screen()
    screen.begin()
    for event in events:
        screen.show(event)
    screen.end()
    return re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", file.getvalue())


def test_line_below_the_answer_is_erased_before_text_is_printed() -> None:
    screen, file = _open_screen()
    screen.begin()
    screen.console.push_render_hook(_DrawInBetween(screen))
    screen.show(TextEvent(content="Noted: “a bike”\n\n"))
    screen.end()
    shown = re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", file.getvalue())
    assert "Noted: “a bike”" in shown
    assert " sNoted" not in shown


@pytest.mark.parametrize("named", [KEY, SHOWN_KEY])
def test_sources_that_the_answer_names_are_not_repeated(named: str) -> None:
    call = {"sources": [KEY, "atlas"], "confidence": 0.72}
    shown = _show(
        ToolCallEvent(tool_name="register_metadata", tool_id="1", status="started", arguments=call),
        MetadataEvent(sources=[KEY, "atlas"], confidence=0.72),
        ToolCallEvent(tool_name="register_metadata", tool_id="1", status="completed"),
        TextEvent(content=f"1. `{named}`: My bike is red."),
    )
    assert "register_metadata(" not in shown
    assert shown.rindex("· sources: atlas, confidence 72%") > shown.rindex("My bike is red.")


def test_key_of_a_message_is_shortened_among_the_sources() -> None:
    shown = _show(MetadataEvent(sources=[KEY, "atlas"]), TextEvent(content="Your bike is red."))
    assert f"· sources: {SHOWN_KEY}, atlas" in shown


def test_slow_call_is_printed_once() -> None:
    begun = ToolCallEvent(
        tool_name="search_rem", tool_id="1", status="started", arguments={"query": "bike"}, agent="rem"
    )
    shown = _show(
        begun,
        ProgressEvent(step=1, total_steps=1, label="Running search_rem"),
        ProgressEvent(step=1, total_steps=2, label="Reading bike.md"),
        TextEvent(content="Red."),
    )
    assert "· rem: search_rem(query='bike')" in shown
    assert "Running search_rem" not in shown
    assert "· [1/2] Reading bike.md" in shown


def test_lists_and_tables_have_no_empty_lines_around_them() -> None:
    screen, file = _open_screen()
    screen.markdown("1. Albatross\n2. Heron")
    screen.markdown("| boat | length |\n| --- | --- |\n| Heron | 7 m |")
    lines = [line.strip() for line in file.getvalue().splitlines()]
    assert lines[:3] == ["1 Albatross", "2 Heron", "boat   length"]
    assert lines[-1] == "Heron  7 m"


def test_finished_block_is_not_drawn_again_below_itself() -> None:
    screen, file = _open_screen()
    screen.begin()
    view = screen._view
    assert view is not None
    with screen.console.printing:
        # No other thread draws meanwhile: what is printed now is exactly what a reader sees until the next refresh.
        screen.show(TextEvent(content="The first"))
        view.draw()
        before = len(file.getvalue())
        screen.show(TextEvent(content=" boat.\n\n"))
        printed = file.getvalue()[before:]
    screen.end()
    assert printed.count("The first") == 1
