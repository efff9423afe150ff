"""Run a plan: each stage starts when the stages that it depends on are done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from rem.errors import QueryLimitError, RemError
from rem.query.language.printer import print_query
from rem.query.plans.plan import CheckedStage, Plan, PlanResult, StageResult, check_plan
from rem.query.plans.template import NoInputError
from rem.query.result import QueryResult
from rem.query.syntax_tree import Query

if TYPE_CHECKING:
    from rem.query.executor import QueryExecutor
    from rem.query.plans.references import Row, RowSelection

MAX_RUNS_PER_STAGE = 50
"""A stage with `for_each` runs for at most this many rows."""
MAX_CONCURRENT_QUERIES = 4
"""At most this many queries of one plan run at the same time, to leave connections for others."""


MAX_RESULT_CHARS = 64_000_000
"""The results of all stages are in memory until the last one is done."""

OnStage: TypeAlias = Callable[[str, int, int], Awaitable[None]]
"""Called with the id of a finished stage, the number of finished stages, and the number of all stages."""


async def run_plan(executor: QueryExecutor, plan: Plan, on_stage: OnStage | None = None) -> PlanResult:
    """Run all stages. A failed stage reports its error in its result; only an invalid plan raises InvalidInputError."""
    stages = check_plan(plan)
    run = _Run(executor)
    finished = 0

    async def run_stage(stage: CheckedStage) -> StageResult:
        nonlocal finished
        result = await run.run_stage(stage)
        finished += 1
        if on_stage is not None:
            await on_stage(stage.id, finished, len(stages))
        return result

    async with asyncio.TaskGroup() as group:
        for stage in stages.values():
            run.tasks[stage.id] = group.create_task(run_stage(stage))
    results = tuple(run.tasks[stage.id].result() for stage in plan.stages)
    return PlanResult(results, plan.answer or plan.stages[-1].id)


@dataclass(frozen=True, slots=True)
class _BoundQuery:
    """A query that is ready to run."""

    query: Query
    row: object = None
    """The key of the row that it runs for, in a stage with `for_each`."""


@dataclass(slots=True)
class _Run:
    """One run of a plan."""

    executor: QueryExecutor
    tasks: dict[str, asyncio.Task[StageResult]] = field(default_factory=dict)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_QUERIES))
    blocked: set[str] = field(default_factory=set)
    """The stages that failed, and the stages that depend on them."""
    chars: int = 0
    """The characters in the results so far."""

    async def run_stage(self, stage: CheckedStage) -> StageResult:
        """Wait for the stages that a stage depends on, run it, and return its result."""
        before = {name: await self.tasks[name] for name in sorted(stage.depends_on)}
        failed = [name for name in before if name in self.blocked]
        if failed:
            self.blocked.add(stage.id)
            return _skip_stage(stage, f"Skipped, because {', '.join(failed)} failed or was skipped for a failure.")
        rows = {source: source.select(before[source.stage].result.results) for source in stage.sources}
        try:
            bound, notes = _bind_queries(stage, rows, before)
        except NoInputError as error:
            return _skip_stage(stage, f"Skipped: {error}")
        return await self._run_queries(stage, bound, notes)

    async def _run_queries(
        self, stage: CheckedStage, bound: Sequence[_BoundQuery], notes: Sequence[str]
    ) -> StageResult:
        queries = tuple(print_query(item.query) for item in bound)
        written = stage.written if stage.for_each else queries[0]
        ran = queries if stage.for_each else ()
        try:
            results = await self._run_all(bound)
        except RemError as error:
            self.blocked.add(stage.id)
            return StageResult(stage.id, "failed", written, _empty_result(stage), ran, str(error))
        result = _merge_results(bound, results) if stage.for_each else results[0]
        result = replace(result, notes=tuple(dict.fromkeys((*notes, *result.notes))))
        return StageResult(stage.id, "done", written, result, ran)

    async def _run_all(self, bound: Sequence[_BoundQuery]) -> list[QueryResult]:
        """Run the queries of a stage at the same time. If one fails, cancel the others."""
        tasks = [asyncio.create_task(self._run_one(one.query)) for one in bound]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_one(self, query: Query) -> QueryResult:
        async with self.slots:
            # Each query has a limit of its own, but a plan of small size can run a thousand.
            self._check_chars()
            result = await self.executor.run(query)
        self.chars += sum(map(_count_chars, result.results))
        self._check_chars()
        return result

    def _check_chars(self) -> None:
        if self.chars > MAX_RESULT_CHARS:
            raise QueryLimitError(
                f"The results of the plan have more than {MAX_RESULT_CHARS:,} characters: ask for fewer rows."
            )


def _count_chars(row: Mapping[str, Any]) -> int:
    """Return about how many characters a row has: its texts and those of its record. Other values are small."""
    record = row.get("record")
    values = [*row.values(), *record.values()] if isinstance(record, Mapping) else row.values()
    return sum(len(value) for value in values if isinstance(value, str))


def _bind_queries(
    stage: CheckedStage, rows: dict[RowSelection, Sequence[Row]], before: dict[str, StageResult]
) -> tuple[list[_BoundQuery], list[str]]:
    """Return the queries of a stage and notes: one query, or one for each row that has values for the references."""
    if stage.for_each is None or stage.row is None:
        query, notes = stage.template.bind(rows)
        return [_BoundQuery(query)], notes
    source_rows = stage.for_each.select(before[stage.for_each.stage].result.results)
    if not source_rows:
        raise NoInputError(f"{stage.for_each.stage} gave no rows to run for.")
    bound: list[_BoundQuery] = []
    notes, missing = [], []
    for position, row in enumerate(source_rows[:MAX_RUNS_PER_STAGE]):
        try:
            query, row_notes = stage.template.bind({**rows, stage.row: [row]})
        except NoInputError as error:
            missing.append(str(error))
            continue
        bound.append(_BoundQuery(query, row.get("key", position)))
        notes += row_notes
    if not bound:
        raise NoInputError(missing[0])
    if missing:
        notes.append(f"Left out {len(missing)} of {len(source_rows)} rows: {missing[0]}")
    if len(source_rows) > MAX_RUNS_PER_STAGE:
        notes.append(f"Only the first {MAX_RUNS_PER_STAGE} of {len(source_rows)} rows were run for.")
    return bound, notes


def _merge_results(bound: Sequence[_BoundQuery], results: Sequence[QueryResult]) -> QueryResult:
    """Merge the results of a stage's queries. Each row names the row that its query ran for."""
    pairs = list(zip(bound, results, strict=True))
    return QueryResult(
        results[0].query_type,
        [{"for_each": item.row, **row} for item, result in pairs for row in result.results],
        tuple(note for result in results for note in result.notes),
        tuple(step for result in results for step in result.steps),
    )


def _skip_stage(stage: CheckedStage, note: str) -> StageResult:
    return StageResult(stage.id, "skipped", stage.written, _empty_result(stage, note))


def _empty_result(stage: CheckedStage, *notes: str) -> QueryResult:
    return QueryResult(stage.template.query_type, [], notes)
