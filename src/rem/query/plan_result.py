"""What a plan answers: one result for each stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rem.query.result import QueryResult

Status: TypeAlias = Literal["done", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class StageResult:
    """What became of a stage."""

    id: str
    status: Status
    query: str
    """As it ran; as it was written if it did not run, or ran for each of several rows."""
    result: QueryResult
    """Without rows if the stage did not run; its notes say why it was skipped."""
    queries: tuple[str, ...] = ()
    """The queries of a stage that ran for each of several rows."""
    error: str | None = None

    def as_json(self, *, explain: bool = False) -> dict[str, Any]:
        """Plain JSON; with `explain`, also the steps."""
        answer: dict[str, Any] = {"id": self.id, "status": self.status, "query": self.query}
        if self.queries:
            answer["queries"] = list(self.queries)
        if self.error is not None:
            answer["error"] = self.error
        return {**answer, **self.result.as_json(explain=explain)}


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The results of the stages, in the order of the plan."""

    stages: tuple[StageResult, ...]
    answer: str
    """The stage whose results are those of the plan."""

    def __getitem__(self, stage_id: str) -> StageResult:
        """The result of one stage."""
        return next(stage for stage in self.stages if stage.id == stage_id)

    @property
    def results(self) -> list[dict[str, Any]]:
        """The rows of the stage that answers."""
        return self[self.answer].result.results

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.results)

    def as_json(self, *, explain: bool = False) -> dict[str, Any]:
        """Plain JSON; with `explain`, also the steps of each stage."""
        return {
            "query_type": "PLAN",
            "stages": [stage.as_json(explain=explain) for stage in self.stages],
            "answer": self.answer,
            "results": self.results,
            "count": self.count,
        }
