"""The result of a query, in the same form for every verb."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One timed part of the work for a query."""

    name: str
    milliseconds: float
    rows: int | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of a query, best first. Except for SQL, a row has `table`, `key` and `record`, and some have `score`."""

    query_type: str
    results: list[dict[str, Any]]
    notes: tuple[str, ...] = ()
    """Sentences for the caller, such as that the embedder failed and only words were searched."""
    steps: tuple[Step, ...] = field(default=(), compare=False)

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.results)

    def as_json(self, *, explain: bool = False) -> dict[str, Any]:
        """Return the result as JSON values; with `explain`, also the steps."""
        values: dict[str, Any] = {"query_type": self.query_type, "results": self.results, "count": self.count}
        if self.notes:
            values["notes"] = list(self.notes)
        if explain:
            values["steps"] = [asdict(step) for step in self.steps]
        return values


@dataclass(slots=True)
class StepProgress:
    """The details of a step that is still running."""

    rows: int | None = None
    detail: str | None = None


class Steps(list[Step]):
    """The steps of a query so far."""

    @contextmanager
    def measure(self, name: str) -> Iterator[StepProgress]:
        """Time the block and add it as a step. No step is added if the block raises."""
        progress = StepProgress()
        started = time.perf_counter()
        yield progress
        milliseconds = round((time.perf_counter() - started) * 1e3, 3)
        self.append(Step(name, milliseconds, progress.rows, progress.detail))
