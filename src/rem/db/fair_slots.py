"""FairSlots: let a limited number of callers work at the same time, without one owner delaying the others."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable

from rem.errors import QueryLimitError

MAX_WAITING_PER_OWNER = 100


class Slot:
    """The right of an owner to work, until it is released."""

    __slots__ = ("_is_released", "_owner", "_slots")

    def __init__(self, slots: FairSlots, owner: Hashable) -> None:
        self._slots = slots
        self._owner = owner
        self._is_released = False

    def release(self) -> None:
        """Give the slot to the next caller. A second call has no effect."""
        if not self._is_released:
            self._is_released = True
            self._slots.give_back(self._owner)


class FairSlots:
    """Slots that owners take in turns. One owner has at most half of them, so that there is room for others."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._max_per_owner = max(1, size // 2)
        self._in_use: Counter[Hashable] = Counter()
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        """The waiting callers of each owner. The owner whose turn is next comes first."""

    async def acquire(self, owner: Hashable, timeout_seconds: float) -> Slot:
        """Wait for a slot. Raise QueryLimitError if there is none in time, or if the owner has too many waiting."""
        waiting = self._waiting.setdefault(owner, deque())
        if len(waiting) >= MAX_WAITING_PER_OWNER:
            raise QueryLimitError(
                f"You have {MAX_WAITING_PER_OWNER} SQL queries waiting: wait for their results before you send more."
            )
        turn = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        self._grant_turns()
        try:
            async with asyncio.timeout(timeout_seconds):
                await turn
        except TimeoutError as error:
            self._give_up(owner, turn)
            raise QueryLimitError(
                f"Too many SQL queries are running: there was no room for this one in {timeout_seconds:g} s. "
                "Try again in a moment."
            ) from error
        except asyncio.CancelledError:
            self._give_up(owner, turn)
            raise
        return Slot(self, owner)

    def give_back(self, owner: Hashable) -> None:
        """Take a slot back from its owner, and grant the next turn."""
        self._free += 1
        self._in_use[owner] -= 1
        if not self._in_use[owner]:
            del self._in_use[owner]
        self._grant_turns()

    def _give_up(self, owner: Hashable, turn: asyncio.Future[None]) -> None:
        """Forget a caller that no longer waits, or give back what it was granted at the same moment."""
        if turn.done() and not turn.cancelled():
            self.give_back(owner)
            return
        waiting = self._waiting.get(owner, deque())
        if turn in waiting:
            waiting.remove(turn)
        if not waiting:
            self._waiting.pop(owner, None)

    def _grant_turns(self) -> None:
        """Grant free slots to the waiting owners in turns."""
        while self._free and (owner := self._find_next_owner()) is not None:
            waiting = self._waiting.pop(owner)
            turn = waiting.popleft()
            if waiting:
                self._waiting[owner] = waiting  # now the last in the order
            if turn.done():
                continue
            self._free -= 1
            self._in_use[owner] += 1
            turn.set_result(None)

    def _find_next_owner(self) -> Hashable | None:
        return next((owner for owner in self._waiting if self._in_use[owner] < self._max_per_owner), None)
