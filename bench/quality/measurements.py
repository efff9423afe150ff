"""Run a whole benchmark: open REM, store and ask everything, and erase the data after an error or Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from bench.quality.report import BenchmarkReport, make_report
from bench.quality.retrieval_benchmark import OnProgress, QuestionOutcome, RetrievalBenchmark
from bench.quality.temporary_server import prepare_schema
from bench.quality.week.data import DAYS, Week
from bench.quality.week.report import WeekReport, make_week_report
from bench.quality.week.run import OnStage, WeekResult, WeekRun
from bench.quality.week.tickets import TICKET_USER, find_tickets
from rem.app import Rem
from rem.context import Scope

if TYPE_CHECKING:
    from bench.quality.dataset import Dataset
    from rem.dreams.audit import AuditReport
    from rem.query.tree import Mode
    from rem.settings import Settings

Progress: TypeAlias = Callable[[str], AbstractContextManager[OnProgress]]
"""Takes the name of a step, and returns a context with the function that is called with its progress."""
OnMessage: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class WeekOptions:
    """How much of a week is lived through."""

    days: int = DAYS
    with_nights: bool = True
    with_tickets: bool = True


@dataclass(frozen=True, slots=True)
class MeasuredWeek:
    """The report of a week, its outcomes, and the audit of the memory at its end."""

    report: WeekReport
    result: WeekResult
    audit: AuditReport


async def measure_retrieval(
    settings: Settings,
    dataset: Dataset,
    *,
    tenant: str,
    progress: Progress,
    on_message: OnMessage,
    mode: Mode = "hybrid",
    concurrency: int = 1,
    dream: bool = False,
    is_new_server: bool = False,
) -> tuple[BenchmarkReport, list[QuestionOutcome]]:
    """Store, index and ask a data set. Return the report, and the outcomes in the order of the questions."""
    if is_new_server:
        await prepare_schema(settings)
    async with Rem.open(settings, on_progress=on_message) as rem:
        benchmark = RetrievalBenchmark(rem, dataset, tenant=tenant, mode=mode, concurrency=concurrency)
        try:
            with progress("Storing") as on_rows:
                await benchmark.store(on_rows)
            with progress("Indexing") as on_rows:
                await benchmark.index(on_rows)
            if dream:
                with progress("Dreaming") as on_users:
                    await benchmark.dream(on_users)
            with progress("Asking") as on_questions:
                outcomes = await benchmark.ask(on_questions)
        except BaseException:
            await benchmark.erase()
            raise
        configuration = await benchmark.configuration(settings)
        return make_report(dataset, outcomes, benchmark.timing, configuration), outcomes


async def measure_week(
    settings: Settings,
    data: Week,
    options: WeekOptions,
    *,
    tenant: str,
    on_stage: OnStage,
    on_message: OnMessage,
    is_new_server: bool = False,
) -> MeasuredWeek:
    """Run a week without a language model, and return what was measured."""
    llm = settings.llm.model_copy(update={"default_model": None})
    settings = settings.model_copy(update={"llm": llm})
    if is_new_server:
        await prepare_schema(settings)
    async with Rem.open(settings, on_progress=on_message) as rem:
        try:
            run = WeekRun(rem, data, tenant=tenant, on_stage=on_stage)
            result = await run.run(options.days, with_nights=options.with_nights)
            audit = await rem.dreamer().audit(Scope.for_user(data.user, tenant))
            found = await find_tickets(rem, tenant) if options.with_tickets else None
        except BaseException:
            for user in (data.user, TICKET_USER):
                await rem.for_user(user, tenant=tenant).erase_user()
            raise
        return MeasuredWeek(make_week_report(data, result, found), result, audit)
