"""What a query answers, in the same shape for every verb."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was done for an answer, and how long it took."""

    name: str
    milliseconds: float
    rows: int | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of an answer, best first. All but those of SQL have `table`, `key`, `record` and perhaps a `score`."""

    query_type: str
    results: list[dict[str, Any]]
    notes: tuple[str, ...] = ()
    """What the caller should know, such as that the embedder was down and only words were searched."""
    steps: tuple[Step, ...] = field(default=(), compare=False)

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.results)

    def as_json(self, *, explain: bool = False) -> dict[str, Any]:
        """Plain JSON; with `explain`, also the steps."""
        answer: dict[str, Any] = {"query_type": self.query_type, "results": self.results, "count": self.count}
        if self.notes:
            answer["notes"] = list(self.notes)
        if explain:
            answer["steps"] = [asdict(step) for step in self.steps]
        return answer


@dataclass(slots=True)
class StepProgress:
    """What a step that is under way can say of itself."""

    rows: int | None = None
    detail: str | None = None


class Steps(list[Step]):
    """The steps so far."""

    @contextmanager
    def measure(self, name: str) -> Iterator[StepProgress]:
        """Add a step that takes as long as the block."""
        progress = StepProgress()
        started = time.perf_counter()
        yield progress
        milliseconds = round((time.perf_counter() - started) * 1e3, 3)
        self.append(Step(name, milliseconds, progress.rows, progress.detail))
