"""Measure the quality of the memory: benchmarks on temporary servers, and an audit of the user's own memory."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from bench.quality.dataset import Dataset
from bench.quality.measurements import MeasuredWeek, WeekOptions, measure_retrieval, measure_week
from bench.quality.memory.report import Mode, QualityMetric, QualityReport, make_mean, make_share
from bench.quality.report import measure as measure_metric
from bench.quality.temporary_server import temporary_server
from bench.quality.week.data import DAYS, Week, read_week
from bench.quality.week.run import REPEATED
from rem.app import Rem
from rem.context import Scope
from rem.dreams.history import list_statement_page
from rem.models.field_types import utc_now
from rem.search.embedder_factory import open_embedder
from rem.search.reranker import open_reranker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from bench.quality.measurements import OnMessage, Progress
    from bench.quality.report import BenchmarkReport
    from bench.quality.retrieval_benchmark import QuestionOutcome
    from bench.quality.week.run import OnStage, WeekOutcome
    from rem.dreams.audit import AuditReport
    from rem.settings import Settings

ReadDataset: TypeAlias = Callable[[int | None], Dataset]
"""Reads a data set; with a number, only that many memories or questions of it."""
QUICK_DAYS = 2


@dataclass(frozen=True, slots=True)
class DatasetChoice:
    """A data set to measure, and how many of its memories or questions the quick mode takes."""

    name: str
    read: ReadDataset
    quick_limit: int


@dataclass(frozen=True, slots=True)
class QualityPlan:
    """What to measure."""

    mode: Mode
    datasets: Sequence[DatasetChoice] = ()
    with_week: bool = True
    week_file: Path | None = None
    audited: Sequence[Scope] | None = None
    """The owners whose memory is audited; None for all of `tenant`."""
    with_audit: bool = True
    tenant: str = "default"
    note: str | None = None


class QualityRun:
    """One measurement. Each part adds its metrics to the report."""

    def __init__(
        self, settings: Settings, plan: QualityPlan, *, progress: Progress, on_stage: OnStage, on_message: OnMessage
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._progress = progress
        self._on_stage = on_stage
        self._on_message = on_message
        self._metrics: dict[str, QualityMetric] = {}
        self._counts: dict[str, int] = {}
        self._speed: dict[str, float] = {}
        self._details: dict[str, Any] = {}
        self._versions: dict[str, str] = {}

    def run(self, run_async: Callable[[Callable[[], Awaitable[None]]], None]) -> QualityReport:
        """Measure all parts, and return the report. `run_async` runs a coroutine to its end.

        The temporary servers are started and stopped outside of the event loop.
        """
        started = perf_counter()
        # All files are read first: an error in the last one would come after an hour.
        week = read_week(self._plan.week_file) if self._plan.with_week else None
        datasets = [choice.read(self._limit(choice)) for choice in self._plan.datasets]
        run_async(self._note_versions)
        if self._plan.with_audit:
            self._on_message("Auditing your memory …")
            run_async(self._audit)
        for choice, dataset in zip(self._plan.datasets, datasets, strict=True):
            self._on_message(f"Measuring {choice.name} …")
            with self._server() as settings:
                run_async(partial(self._measure_dataset, settings, choice.name, dataset))
        if week is not None:
            self._on_message("Living through a week …")
            with self._server() as settings:
                run_async(partial(self._measure_week, settings, week))
        return QualityReport(
            made_at=utc_now(),
            mode=self._plan.mode,
            note=self._plan.note,
            versions=self._versions,
            metrics=self._metrics,
            counts=self._counts,
            speed=self._speed,
            seconds=round(perf_counter() - started, 1),
            details=self._details,
        )

    def _limit(self, choice: DatasetChoice) -> int | None:
        return choice.quick_limit if self._plan.mode == "quick" else None

    @contextmanager
    def _server(self) -> Iterator[Settings]:
        with temporary_server(self._settings, self._on_message) as settings:
            yield settings

    async def _audit(self) -> None:
        """Audit the user's own memory. Nothing in it is changed."""
        async with Rem.open(self._settings, on_progress=self._on_message) as rem:
            dreamer = rem.dreamer()
            scopes = self._plan.audited
            if scopes is None:
                scopes = [Scope(*owner) for owner in await dreamer.list_owners(self._plan.tenant)]
            statements = issues = 0
            for scope in scopes:
                report = await dreamer.audit(scope)
                statements += (await list_statement_page(rem.for_user(scope).store, limit=1)).total
                issues += sum(report.counts.values())
                for check, count in report.counts.items():
                    self._counts[check] = self._counts.get(check, 0) + count
        self._counts["statements"] = statements
        self._metrics["audit.sound"] = make_share(max(statements - issues, 0), statements)

    async def _measure_dataset(self, settings: Settings, name: str, dataset: Dataset) -> None:
        report, outcomes = await measure_retrieval(
            settings,
            dataset,
            tenant=f"bench-{name}-{uuid4().hex[:8]}",
            progress=self._progress,
            on_message=self._on_message,
            is_new_server=True,
        )
        self._add_retrieval(name, dataset, report, outcomes)

    def _add_retrieval(
        self, name: str, dataset: Dataset, report: BenchmarkReport, outcomes: Sequence[QuestionOutcome]
    ) -> None:
        data = _fingerprint([(item.question.id, item.question.text, item.question.gold) for item in outcomes])
        scored = [outcome for outcome in outcomes if outcome.question.gold]
        for metric in dataset.metrics:
            cases = {
                f"{outcome.user}/{outcome.question.id}": round(
                    measure_metric(metric, outcome.question.gold, outcome.found), 4
                )
                for outcome in scored
            }
            self._metrics[f"{name}.{metric}"] = make_mean(cases, data)
        self._speed[f"{name} ms per question"] = report.latency_ms["whole"].p50 or 0.0
        self._details[name] = asdict(report)

    async def _measure_week(self, settings: Settings, week: Week) -> None:
        days = QUICK_DAYS if self._plan.mode == "quick" else DAYS
        measured = await measure_week(
            settings,
            week,
            # The tickets are no part of the week of a user.
            WeekOptions(days, with_tickets=self._plan.week_file is None),
            tenant=f"bench-week-{uuid4().hex[:8]}",
            on_stage=self._on_stage,
            on_message=self._on_message,
            is_new_server=True,
        )
        self._add_week(measured, _fingerprint([days, [question.model_dump() for question in week.questions]]))

    def _add_week(self, measured: MeasuredWeek, data: str) -> None:
        outcomes, report = measured.result.outcomes, measured.report
        repeated = [outcome for outcome in outcomes if outcome.stage == REPEATED]
        self._metrics["week.first"] = make_mean(_list_cases(outcomes, "is_first"), data)
        self._metrics["week.among"] = make_mean(_list_cases(outcomes, "is_among"), data)
        if repeated:
            self._metrics["week.first after all nights"] = make_mean(_list_cases(repeated, "is_first"), data)
        if report.people:
            found, people = list(report.people.values())[-1]
            self._metrics["week.people found"] = make_share(found, people)
        if report.tickets is not None:
            missed = len(report.tickets.missed)
            self._metrics["week.tickets first"] = make_share(report.tickets.searches - missed, report.tickets.searches)
        derived = [(counts["all"], len(counts["of_questions"])) for counts in report.derived.values()]
        whole = sum(count for count, _ in derived)
        self._metrics["week.derived from statements"] = make_share(whole - sum(bad for _, bad in derived), whole)
        self._metrics["week.sound"] = _share_sound(measured.audit, whole)
        self._speed["week ms per question"] = report.milliseconds_per_question
        self._speed["week seconds of dreams"] = report.dream_seconds
        self._details["week"] = {**asdict(report), "audit": measured.audit.counts}

    async def _note_versions(self) -> None:
        embedder = open_embedder(self._settings)
        await embedder.close()
        reranker = open_reranker(self._settings.reranker)
        self._versions = {
            "rem": version("remstack"),
            "python": platform.python_version(),
            "embedder": embedder.model,
            "reranker": "none" if reranker is None else reranker.name,
            "language": self._settings.search.language,
        }


def _list_cases(outcomes: Sequence[WeekOutcome], name: str) -> dict[str, float]:
    """Return a figure of each question at each stage. The same question may be asked twice at one stage."""
    cases: dict[str, float] = {}
    for outcome in outcomes:
        key = f"{outcome.stage}: {outcome.question.source}: {outcome.question.ask}"
        while key in cases:
            key += "'"
        cases[key] = float(getattr(outcome, name))
    return cases


def _share_sound(audit: AuditReport, whole: int) -> QualityMetric:
    issues = sum(audit.counts.values())
    return make_share(max(whole - issues, 0), whole)


def _fingerprint(value: Any) -> str:
    return sha256(repr(value).encode()).hexdigest()[:16]
