"""Check that SEARCH finds an exact number: many similar notes with one ticket number each."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from rem.app import Rem
from rem.context import Scope

NOTES, SEARCHES = 300, 20
FIRST_TICKET = 1600
"""The numbers are consecutive, so that every one has neighbours that look alike."""
TICKET_USER = "tickets@example.com"
_PLACES = ("the warehouse", "the front desk", "the lab", "the canteen", "the print room", "the garage", "room 12")
_THINGS = (
    "printer",
    "projector",
    "badge reader",
    "coffee machine",
    "router",
    "scanner",
    "door lock",
    "heater",
    "screen",
)
_STATES = ("does not start", "makes a noise", "shows an error", "loses its settings", "is slow", "was replaced")


@dataclass(frozen=True, slots=True)
class TicketResult:
    """The searches, and the numbers that did not come first."""

    searches: int
    missed: tuple[int, ...]


async def find_tickets(rem: Rem, tenant: str, *, notes: int = NOTES, searches: int = SEARCHES) -> TicketResult:
    """Ingest notes with a ticket number each, search for some numbers, and return which did not come first."""
    scope = Scope.for_user(TICKET_USER, tenant)
    numbers = range(FIRST_TICKET, FIRST_TICKET + notes)
    with tempfile.TemporaryDirectory(prefix="rem-tickets-") as folder:
        for number in numbers:
            (Path(folder) / f"note-{number - FIRST_TICKET:03}.md").write_text(_write_note(number), encoding="utf-8")
        await rem.for_user(scope).ingest(folder)
    searched = numbers[1 :: max(notes // searches, 1)][:searches]
    missed = []
    for number in searched:
        result = await rem.for_user(scope).query(f'SEARCH "Ticket {number}"')
        first = str(result.hits[0].record.get("content", "")) if result.hits else ""
        if f"Ticket {number}:" not in first:
            missed.append(number)
    return TicketResult(len(searched), tuple(missed))


def _write_note(number: int) -> str:
    """Return a note. Its words repeat in many others; only the number is its own."""
    thing, place = _THINGS[number % len(_THINGS)], _PLACES[number % len(_PLACES)]
    state = _STATES[number // 7 % len(_STATES)]
    return (
        f"# The {thing} in {place}\n\nTicket {number}: the {thing} in {place} {state}. "
        f"Somebody from the support team looks at it within {number % 4 + 2} working days.\n"
    )
