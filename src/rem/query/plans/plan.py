"""Plans: queries in stages, where the rows of one stage are values in the next. Also their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal, TypeAlias

import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from rem.errors import InvalidInputError
from rem.query.plans.references import STAGE_ID, RowSelection, parse_selection
from rem.query.plans.template import Template
from rem.query.result import QueryResult

MAX_STAGES = 20
MAX_SHOWN_ERRORS = 3
StageId = Annotated[str, StringConstraints(pattern=rf"^{STAGE_ID}$")]


class Stage(BaseModel):
    """A query that may refer to the rows of other stages.

    `for_each` names a stage (`people`, or `people[:3]`): the query then runs once for each of its rows, and a reference
    to that stage means that row. `depends_on` names stages that must run first although the query does not refer to
    them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: StageId
    query: str
    depends_on: tuple[StageId, ...] = ()
    for_each: str | None = None


class Plan(BaseModel):
    """Stages, in the order of the result. `answer` names the stage whose rows are the result; by default the last."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stages: Annotated[tuple[Stage, ...], Field(min_length=1, max_length=MAX_STAGES)]
    answer: StageId | None = None

    @classmethod
    def parse(cls, plan: Plan | Mapping[str, Any] | str | bytes) -> Plan:
        """Parse a plan from JSON or from a mapping. Raise InvalidInputError with the field that is wrong."""
        if isinstance(plan, Plan):
            return plan
        try:
            return cls.model_validate(orjson.loads(plan) if isinstance(plan, str | bytes) else plan)
        except orjson.JSONDecodeError as error:
            raise InvalidInputError(f"The plan is not JSON: {error}.") from error
        except ValidationError as error:
            raise InvalidInputError(f"The plan is not valid. {_explain(error)} {_EXAMPLE}") from error


_EXAMPLE = 'A plan is {"stages": [{"id": "a", "query": "SEARCH …"}, {"id": "b", "query": "TRAVERSE FROM {a.key}"}]}.'


_MESSAGES = {
    "missing": "it is missing",
    "extra_forbidden": "there is no such field",
    "string_pattern_mismatch": "it must be a letter, then letters, digits, _ and -",
    "string_type": "it must be a text",
    "tuple_type": "it must be a list",
    "too_short": "there must be at least one",
    "too_long": f"there may be at most {MAX_STAGES}",
}
_NOT_AN_OBJECT = "it must be an object"


def _explain(error: ValidationError) -> str:
    errors = error.errors(include_url=False)
    # Pydantic counts only valid stages, and reports a list of invalid ones as too short. That error is left out.
    has_stage_errors = any(detail["loc"][:1] == ("stages",) and len(detail["loc"]) > 1 for detail in errors)
    shown = [detail for detail in errors if not (has_stage_errors and detail["loc"] == ("stages",))]
    return " ".join(_explain_one(detail) for detail in shown[:MAX_SHOWN_ERRORS])


def _explain_one(detail: ErrorDetails) -> str:
    message = _NOT_AN_OBJECT if detail["type"].startswith("model_") else _MESSAGES.get(detail["type"], detail["msg"])
    path = ".".join(map(str, detail["loc"]))
    return f"{path}: {message}." if path else f"{message.capitalize()}."


class CheckedStage:
    """A stage with its parsed query and checked references."""

    def __init__(self, stage: Stage, stages: tuple[str, ...]) -> None:
        self.id = stage.id
        self.written = stage.query
        try:
            self.template = Template.parse(stage.query, stages)
            self.for_each = None if stage.for_each is None else parse_selection(stage.for_each)
            self.sources = frozenset(reference.source for reference in self.template.references)
            self._check(stage, stages)
        except InvalidInputError as error:
            raise InvalidInputError(f"Stage {stage.id}: {error}") from error
        self.depends_on = {source.stage for source in self.sources}.union(stage.depends_on)

    @property
    def row(self) -> RowSelection | None:
        """The selection that means the current row, in a stage that runs for each row."""
        return None if self.for_each is None else RowSelection(self.for_each.stage)

    def _check(self, stage: Stage, stages: tuple[str, ...]) -> None:
        named = [*stage.depends_on, *([self.for_each.stage] if self.for_each else [])]
        for name in named:
            if name not in stages:
                raise InvalidInputError(f"there is no stage {name}. The stages are {', '.join(stages)}.")
        if stage.id in {*named, *(source.stage for source in self.sources)}:
            raise InvalidInputError("a stage cannot depend on itself.")
        if self.row is not None and self.row not in self.sources:
            raise InvalidInputError(
                f"it runs for each row of {self.row.stage} but its query does not refer to it: "
                f"write {{{self.row.stage}.key}} in it."
            )


def check_plan(plan: Plan) -> dict[str, CheckedStage]:
    """Return the stages in an order in which they can run. Raise InvalidInputError if the plan is not valid."""
    ids = tuple(stage.id for stage in plan.stages)
    repeated = next((name for position, name in enumerate(ids) if name in ids[:position]), None)
    if repeated is not None:
        raise InvalidInputError(f"Two stages have the id {repeated}: give each its own.")
    if plan.answer is not None and plan.answer not in ids:
        raise InvalidInputError(f"The answer is to be {plan.answer}, but the stages are {', '.join(ids)}.")
    stages = {stage.id: CheckedStage(stage, ids) for stage in plan.stages}
    return {name: stages[name] for name in _sort_by_dependency(stages.values())}


def _sort_by_dependency(stages: Iterable[CheckedStage]) -> list[str]:
    try:
        return list(TopologicalSorter({stage.id: stage.depends_on for stage in stages}).static_order())
    except CycleError as error:
        cycle = " → ".join(reversed(error.args[1]))
        raise InvalidInputError(f"These stages wait for each other: {cycle}.") from error


StageStatus: TypeAlias = Literal["done", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class StageResult:
    """The outcome of one stage."""

    id: str
    status: StageStatus
    query: str
    """The query that ran, or the query as written if the stage did not run or ran for each row."""
    result: QueryResult
    """Has no rows if the stage did not run. Its notes say why it was skipped."""
    queries: tuple[str, ...] = ()
    """All queries of a stage that ran for each row."""
    error: str | None = None

    def as_json(self, *, explain: bool = False) -> dict[str, Any]:
        """Return the result as JSON values; with `explain`, also the steps."""
        values: dict[str, Any] = {"id": self.id, "status": self.status, "query": self.query}
        if self.queries:
            values["queries"] = list(self.queries)
        if self.error is not None:
            values["error"] = self.error
        return {**values, **self.result.as_json(explain=explain)}


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The results of the stages, in the order of the plan."""

    stages: tuple[StageResult, ...]
    answer: str
    """The id of the stage whose rows are the result of the plan."""

    def __getitem__(self, stage_id: str) -> StageResult:
        """Return the result of one stage."""
        return next(stage for stage in self.stages if stage.id == stage_id)

    @property
    def results(self) -> list[dict[str, Any]]:
        """The rows of the stage that `answer` names."""
        return self[self.answer].result.results

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.results)

    def as_json(self, *, explain: bool = False) -> dict[str, Any]:
        """Return the result as JSON values; with `explain`, also the steps of each stage."""
        return {
            "query_type": "PLAN",
            "stages": [stage.as_json(explain=explain) for stage in self.stages],
            "answer": self.answer,
            "results": self.results,
            "count": self.count,
        }
