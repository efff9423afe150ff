"""Experiments: run a target on every case of a golden set, then judge the outputs. Both parts can be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from loguru import logger

from rem.agents.yaml_parser import parse_agent_document
from rem.errors import ConflictError, DatabaseError, InvalidInputError, RemError
from rem.evals.evaluators import CaseOutput, Evaluator, Judge, Judgement
from rem.evals.experiment_store import ExperimentRun, ExperimentStore, StoredCase
from rem.evals.golden_sets import GoldenSet
from rem.evals.targets import Target

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.context import Scope

OnProgress: TypeAlias = Callable[[int, int | None], None]
T = TypeVar("T")

DEFAULT_CONCURRENCY = 4
MAX_CONCURRENCY = 64
_TARGET_VERSIONS = ("model", "prompt_hash", "schema_hash")
"""Versions that must not change between the parts of one run."""


def _ignore_progress(_done: int, _total: int | None) -> None:
    pass


@dataclass(slots=True)
class RunOptions:
    """How the cases of a run are worked off."""

    concurrency: int = DEFAULT_CONCURRENCY
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """When it is set, no further case begins, and those in flight are finished."""
    on_output: OnProgress = _ignore_progress
    on_scores: OnProgress = _ignore_progress

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= MAX_CONCURRENCY:
            raise InvalidInputError(f"Between 1 and {MAX_CONCURRENCY} cases can be in flight.")


class Experiments:
    """Runs the experiments of one owner."""

    def __init__(self, rem: Rem, scope: Scope) -> None:
        self.store = ExperimentStore(rem.database, scope)

    async def start(
        self,
        golden_set: GoldenSet,
        target: Target,
        evaluators: Sequence[Evaluator],
        *,
        name: str | None = None,
        judge: Judge | None = None,
        seed: int = 0,
    ) -> ExperimentRun:
        """Store a new run, after checking that target and evaluators can work. No case has run yet."""
        versions = {
            "rem": version("remstack"),
            "data_hash": golden_set.data_hash,
            **await target.prepare(),
            **_describe_evaluators(evaluators, judge),
        }
        return await self.store.create(
            name or golden_set.name,
            golden_set.name,
            golden_set.cases,
            target=target.description,
            evaluators=[evaluator.schema.as_document() for evaluator in evaluators],
            versions=versions,
            seed=seed,
        )

    async def add_evaluators(
        self, run: ExperimentRun, evaluators: Sequence[Evaluator], judge: Judge | None
    ) -> ExperimentRun:
        """Add evaluators to a run, or replace those of the same name: `complete` then judges the stored outputs."""
        merged = {evaluator.name: evaluator for evaluator in (*load_run_evaluators(run), *evaluators)}
        versions = run.versions | _describe_evaluators(list(merged.values()), judge)
        documents = [evaluator.schema.as_document() for evaluator in merged.values()]
        return await self.store.set_evaluators(run, documents, versions, [evaluator.name for evaluator in evaluators])

    async def complete(
        self, run: ExperimentRun, target: Target | None, judge: Judge | None, options: RunOptions | None = None
    ) -> ExperimentRun:
        """Run the cases that have no output yet (not without a target), then judge the outputs that have no scores.

        A run that was interrupted, even by a kill, goes on where it was. Raise ConflictError if another process works
        on it, or if the target has changed since the run began.
        """
        options = options or RunOptions()
        async with self.store.lock(run):
            if target is not None:
                await self._run_target(run, target, options)
            await self._run_evaluators(run, judge, options)
            cases = await self.store.load_cases(run)
            names = {evaluator["json_schema_extra"]["name"] for evaluator in run.evaluators}
            is_complete = all(case.ended_at and (case.error or names <= set(case.judgements)) for case in cases)
            return await self.store.end(run, is_complete=is_complete)

    async def _run_target(self, run: ExperimentRun, target: Target, options: RunOptions) -> None:
        cases = await self.store.load_cases(run)
        waiting = [case for case in cases if case.ended_at is None]
        if not waiting:
            return
        _refuse_other_versions(run, await target.prepare())
        done = len(cases) - len(waiting)

        async def work(stored: StoredCase) -> None:
            nonlocal done
            output, error = await _catch_error(lambda: target.run(stored.case))
            await self._save_output(run, stored, output or CaseOutput(None), error)
            done += 1
            options.on_output(done, len(cases))

        await _work_off(waiting, work, options)

    async def _save_output(self, run: ExperimentRun, stored: StoredCase, output: CaseOutput, error: str | None) -> None:
        try:
            await self.store.save_output(run, stored.position, output, error)
        except InvalidInputError as unstorable:
            await self.store.save_output(run, stored.position, CaseOutput(None), str(unstorable))

    async def _run_evaluators(self, run: ExperimentRun, judge: Judge | None, options: RunOptions) -> None:
        cases = [case for case in await self.store.load_cases(run) if case.ended_at is not None and case.error is None]
        evaluators = load_run_evaluators(run)
        waiting = [
            (case, evaluator) for case in cases for evaluator in evaluators if evaluator.name not in case.judgements
        ]
        total = len(cases) * len(evaluators)
        done = total - len(waiting)

        async def work(item: tuple[StoredCase, Evaluator]) -> None:
            nonlocal done
            stored, evaluator = item
            started = perf_counter()
            judgement, error = await _catch_error(lambda: evaluator.judge(stored.case, stored.output, judge))
            await self.store.save_judgement(
                run, stored.position, evaluator.name, judgement or Judgement({}), error, perf_counter() - started
            )
            done += 1
            options.on_scores(done, total)

        await _work_off(waiting, work, options)


def load_run_evaluators(run: ExperimentRun) -> list[Evaluator]:
    """Return the evaluators of a run as they were when it began."""
    return [Evaluator(parse_agent_document(document, "The evaluator of the run")) for document in run.evaluators]


def _describe_evaluators(evaluators: Sequence[Evaluator], judge: Judge | None) -> dict[str, Any]:
    """Return the versions of the evaluators. Raise ModelRequiredError if one needs a model and there is none."""
    models = {judge.require_model(item) for item in evaluators if item.needs_model and judge is not None}
    versions: dict[str, Any] = {"evaluators": {item.name: item.versions for item in evaluators}}
    return versions | ({"judge_model": ", ".join(sorted(models))} if models else {})


def _refuse_other_versions(run: ExperimentRun, current: dict[str, Any]) -> None:
    for name in _TARGET_VERSIONS:
        if run.versions.get(name) != current.get(name):
            raise ConflictError(
                f"The {name.replace('_', ' ')} has changed since {run.label} began ({run.versions.get(name)} then, "
                f"{current.get(name)} now), so its outputs would not fit together: start a new run."
            )


async def _catch_error(work: Callable[[], Awaitable[T]]) -> tuple[T | None, str | None]:
    """Return the result of a case, or its error. An error of the database ends the run: nothing could be stored."""
    try:
        return await work(), None
    except DatabaseError:
        raise
    except RemError as error:
        return None, str(error)
    except Exception as error:  # noqa: BLE001  # a function of a program may fail in any way
        logger.debug("A case failed: {!r}", error)
        return None, f"{type(error).__name__}: {error}"


async def _work_off(items: Iterable[T], work: Callable[[T], Awaitable[None]], options: RunOptions) -> None:
    """Do the work for each item, several at a time, until `stop` is set."""
    iterator = iter(items)

    async def take_items() -> None:
        for item in iterator:
            if options.stop.is_set():
                return
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(options.concurrency):
                group.create_task(take_items())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
