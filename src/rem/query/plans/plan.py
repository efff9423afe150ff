"""Plan: queries in stages, where the results of one feed the next."""

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
_MOST_SHOWN = 3
StageId = Annotated[str, StringConstraints(pattern=rf"^{STAGE_ID}$")]


class Stage(BaseModel):
    """A query that may refer to the results of other stages.

    `for_each` names a stage (`people`, or `people[:3]`): the query then runs once for each of its rows, and what refers
    to that stage means the row. `depends_on` names stages that come before although the query does not refer to them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: StageId
    query: str
    depends_on: tuple[StageId, ...] = ()
    for_each: str | None = None


class Plan(BaseModel):
    """Stages in the order in which the answer shows them. `answer` names the one whose results count, else the last."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stages: Annotated[tuple[Stage, ...], Field(min_length=1, max_length=MAX_STAGES)]
    answer: StageId | None = None

    @classmethod
    def parse(cls, plan: Plan | Mapping[str, Any] | str | bytes) -> Plan:
        """A plan from JSON or from what JSON says. An InvalidInputError names the place that is wrong."""
        if isinstance(plan, Plan):
            return plan
        try:
            return cls.model_validate(orjson.loads(plan) if isinstance(plan, str | bytes) else plan)
        except orjson.JSONDecodeError as error:
            raise InvalidInputError(f"The plan is not JSON: {error}.") from error
        except ValidationError as error:
            raise InvalidInputError(f"The plan is not valid. {_explained(error)} {_FORM}") from error


_FORM = 'A plan is {"stages": [{"id": "a", "query": "SEARCH …"}, {"id": "b", "query": "TRAVERSE FROM {a.key}"}]}.'


_IN_WORDS = {
    "missing": "it is missing",
    "extra_forbidden": "there is no such field",
    "string_pattern_mismatch": "it must be a letter, then letters, digits, _ and -",
    "string_type": "it must be a text",
    "tuple_type": "it must be a list",
    "too_short": "there must be at least one",
    "too_long": f"there may be at most {MAX_STAGES}",
}
_NO_OBJECT = "it must be an object"


def _explained(error: ValidationError) -> str:
    problems = error.errors(include_url=False)
    # Pydantic counts only the stages that are valid, and so finds a list of broken ones empty.
    inner = [problem for problem in problems if problem["loc"][:1] == ("stages",) and len(problem["loc"]) > 1]
    shown = [problem for problem in problems if not (inner and problem["loc"] == ("stages",))][:_MOST_SHOWN]
    return " ".join(_one_explained(problem) for problem in shown)


def _one_explained(problem: ErrorDetails) -> str:
    words = _NO_OBJECT if problem["type"].startswith("model_") else _IN_WORDS.get(problem["type"], problem["msg"])
    place = ".".join(map(str, problem["loc"]))
    return f"{place}: {words}." if place else f"{words.capitalize()}."


class CheckedStage:
    """A stage whose query is parsed and whose references lead somewhere."""

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
        """What stands for one row in the query of a stage that runs for each of them."""
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
    """The stages in an order in which they can run. An InvalidInputError if the plan cannot work."""
    ids = tuple(stage.id for stage in plan.stages)
    repeated = next((name for place, name in enumerate(ids) if name in ids[:place]), None)
    if repeated is not None:
        raise InvalidInputError(f"Two stages have the id {repeated}: give each its own.")
    if plan.answer is not None and plan.answer not in ids:
        raise InvalidInputError(f"The answer is to be {plan.answer}, but the stages are {', '.join(ids)}.")
    stages = {stage.id: CheckedStage(stage, ids) for stage in plan.stages}
    return {name: stages[name] for name in _in_order(stages.values())}


def _in_order(stages: Iterable[CheckedStage]) -> list[str]:
    try:
        return list(TopologicalSorter({stage.id: stage.depends_on for stage in stages}).static_order())
    except CycleError as error:
        cycle = " → ".join(reversed(error.args[1]))
        raise InvalidInputError(f"These stages wait for each other: {cycle}.") from error


StageStatus: TypeAlias = Literal["done", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class StageResult:
    """What became of a stage."""

    id: str
    status: StageStatus
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
