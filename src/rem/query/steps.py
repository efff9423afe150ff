"""Steps: what is done for an answer, timed as it is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rem.query.result import Step


@dataclass(slots=True)
class Progress:
    """What a step that is under way can say of itself."""

    rows: int | None = None
    detail: str | None = None


class Steps(list[Step]):
    """The steps so far."""

    @contextmanager
    def timed(self, name: str) -> Iterator[Progress]:
        """Add a step that takes as long as the block."""
        progress = Progress()
        started = time.perf_counter()
        yield progress
        milliseconds = round((time.perf_counter() - started) * 1e3, 3)
        self.append(Step(name, milliseconds, progress.rows, progress.detail))
