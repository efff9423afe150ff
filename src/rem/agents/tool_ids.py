"""ToolIds: a call of a tool is known by an id that no other call of the same answer has."""

from __future__ import annotations

from collections import defaultdict

from rem.events import AnyEvent, ToolCallEvent


class ToolIds:
    """Gives calls another id where the model's own is taken: some providers number those of each request from one."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._open: dict[tuple[str | None, str], list[str]] = defaultdict(list)

    def unique(self, event: AnyEvent) -> AnyEvent:
        """The event with the id of its call. Of calls with the same id, the one that began last ends first."""
        if not isinstance(event, ToolCallEvent):
            return event
        calls = self._open[event.agent, event.tool_id]
        if event.status == "started":
            calls.append(self._new(event.tool_id))
            given = calls[-1]
        else:
            given = calls.pop() if calls else event.tool_id
        return event if given == event.tool_id else event.model_copy(update={"tool_id": given})

    def _new(self, wanted: str) -> str:
        number, unique = 1, wanted
        while unique in self._used:
            number += 1
            unique = f"{wanted}-{number}"
        self._used.add(unique)
        return unique
