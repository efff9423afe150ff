"""Running a plan: each stage as soon as those before it are done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rem.errors import RemError
from rem.query.language.printer import print_query
from rem.query.plans.plan import CheckedStage, Plan, PlanResult, StageResult, check_plan
from rem.query.plans.template import NoInputError
from rem.query.result import QueryResult
from rem.query.tree import Query

if TYPE_CHECKING:
    from rem.query.executor import QueryExecutor
    from rem.query.plans.references import Row, RowSelection

MAX_RUNS_PER_STAGE = 50
"""For so many rows a stage runs at most."""
MAX_CONCURRENT_QUERIES = 4
"""So many queries of one plan run at the same time, so that it leaves connections to others."""


async def run_plan(executor: QueryExecutor, plan: Plan) -> PlanResult:
    """The results of all stages. Only a plan that cannot work is an error; a stage that fails says so in its result."""
    stages = check_plan(plan)
    run = _Run(executor)
    async with asyncio.TaskGroup() as group:
        for stage in stages.values():
            run.tasks[stage.id] = group.create_task(run.stage(stage))
    results = tuple(run.tasks[stage.id].result() for stage in plan.stages)
    return PlanResult(results, plan.answer or plan.stages[-1].id)


@dataclass(frozen=True, slots=True)
class _Filled:
    """A query that is ready to run; for a stage that runs for each row, with what names the row."""

    query: Query
    row: object = None


@dataclass(slots=True)
class _Run:
    """One run of a plan."""

    executor: QueryExecutor
    tasks: dict[str, asyncio.Task[StageResult]] = field(default_factory=dict)
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_QUERIES))
    blocked: set[str] = field(default_factory=set)
    """The stages that failed, and those that depend on one that did."""

    async def stage(self, stage: CheckedStage) -> StageResult:
        """The result of a stage, after those that it depends on."""
        before = {name: await self.tasks[name] for name in sorted(stage.depends_on)}
        lost = [name for name in before if name in self.blocked]
        if lost:
            self.blocked.add(stage.id)
            return _skipped(stage, f"Skipped, because {', '.join(lost)} failed or was skipped for a failure.")
        rows = {source: source.select(before[source.stage].result.results) for source in stage.sources}
        try:
            filled, notes = _filled(stage, rows, before)
        except NoInputError as error:
            return _skipped(stage, f"Skipped: {error}")
        return await self._answer(stage, filled, notes)

    async def _answer(self, stage: CheckedStage, filled: Sequence[_Filled], notes: Sequence[str]) -> StageResult:
        queries = tuple(print_query(one.query) for one in filled)
        written = stage.written if stage.for_each else queries[0]
        ran = queries if stage.for_each else ()
        try:
            results = await self._all(filled)
        except RemError as error:
            self.blocked.add(stage.id)
            return StageResult(stage.id, "failed", written, _nothing(stage), ran, str(error))
        result = _together(filled, results) if stage.for_each else results[0]
        result = replace(result, notes=tuple(dict.fromkeys((*notes, *result.notes))))
        return StageResult(stage.id, "done", written, result, ran)

    async def _all(self, filled: Sequence[_Filled]) -> list[QueryResult]:
        """The answers of a stage's queries; if one fails the others are not waited for."""
        tasks = [asyncio.create_task(self._one(one.query)) for one in filled]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, query: Query) -> QueryResult:
        async with self.turns:
            return await self.executor.run(query)


def _filled(
    stage: CheckedStage, rows: dict[RowSelection, Sequence[Row]], before: dict[str, StageResult]
) -> tuple[list[_Filled], list[str]]:
    """The queries that a stage runs: one, or one for each row that has what they refer to."""
    if stage.for_each is None or stage.row is None:
        query, notes = stage.template.bind(rows)
        return [_Filled(query)], notes
    each = stage.for_each.select(before[stage.for_each.stage].result.results)
    if not each:
        raise NoInputError(f"{stage.for_each.stage} gave no rows to run for.")
    filled: list[_Filled] = []
    notes, missing = [], []
    for position, row in enumerate(each[:MAX_RUNS_PER_STAGE]):
        try:
            query, more = stage.template.bind({**rows, stage.row: [row]})
        except NoInputError as error:
            missing.append(str(error))
            continue
        filled.append(_Filled(query, row.get("key", position)))
        notes += more
    if not filled:
        raise NoInputError(missing[0])
    if missing:
        notes.append(f"Left out {len(missing)} of {len(each)} rows: {missing[0]}")
    if len(each) > MAX_RUNS_PER_STAGE:
        notes.append(f"Only the first {MAX_RUNS_PER_STAGE} of {len(each)} rows were run for.")
    return filled, notes


def _together(filled: Sequence[_Filled], results: Sequence[QueryResult]) -> QueryResult:
    """The answers of a stage's queries as one, each row with the one that it was found for."""
    pairs = list(zip(filled, results, strict=True))
    return QueryResult(
        results[0].query_type,
        [{"for_each": one.row, **row} for one, result in pairs for row in result.results],
        tuple(note for result in results for note in result.notes),
        tuple(step for result in results for step in result.steps),
    )


def _skipped(stage: CheckedStage, note: str) -> StageResult:
    return StageResult(stage.id, "skipped", stage.written, _nothing(stage, note))


def _nothing(stage: CheckedStage, *notes: str) -> QueryResult:
    return QueryResult(stage.template.query_type, [], notes)
