"""Measure the quality of the memory, and compare it with the last report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.quality.datasets import beam as beam_data
from bench.quality.datasets import documents as documents_data
from bench.quality.datasets import locomo as locomo_data
from bench.quality.datasets import longmemeval as longmemeval_data
from bench.quality.datasets import own as own_data
from bench.quality.memory.quality import DatasetChoice, QualityPlan, QualityRun
from bench.quality.memory.report import (
    MetricChange,
    Mode,
    QualityReport,
    compare_reports,
    find_previous,
    list_reports,
    read_report,
    write_report,
)
from bench.quality.week.command import print_stage
from rem.cli.output import print_json, print_table, progress_bar
from rem.cli.runtime import JsonOption, TenantOption, UserOption, print_to_stderr, run_async
from rem.cli.terminal_text import echo
from rem.context import Scope
from rem.settings import Settings, get_settings

REPORTS_FOLDER = Path("evals") / "memory"
MAX_HISTORY_METRICS = 5
QUICK_LIMITS = {"longmemeval": 10, "locomo": 1, "beam": 2, "documents": 50, "own": 50}


def memory(
    full: Annotated[
        bool, typer.Option("--full", help="Measure all of the data: may take hours. Default: some minutes.")
    ] = False,
    longmemeval: Annotated[Path | None, typer.Option(help="A file of LongMemEval.")] = None,
    locomo: Annotated[Path | None, typer.Option(help="A file of LoCoMo.")] = None,
    beam: Annotated[Path | None, typer.Option(help="An archive of BEAM.")] = None,
    documents: Annotated[Path | None, typer.Option(help="A folder in the layout of BEIR.")] = None,
    own: Annotated[
        tuple[Path, Path] | None, typer.Option(metavar="CORPUS QUESTIONS", help="Your own data, as JSON lines.")
    ] = None,
    week: Annotated[bool, typer.Option("--week/--no-week", help="Live through a week of the repository.")] = True,
    week_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Another week, as YAML.")] = None,
    audit: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Audit your own memory; nothing in it is changed.")
    ] = True,
    all_users: Annotated[bool, typer.Option("--all", help="Audit the memories of all users of the tenant.")] = False,
    reports: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the reports are.  [default: evals/memory in REM_HOME]")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The report to compare with. Default: the last one.")
    ] = None,
    note: Annotated[str | None, typer.Option(help="A remark that is kept in the report.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Only list the reports so far.")] = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Measure the memory, and compare with the last report.

    The benchmarks run on temporary servers, never in your memory. Data sets are optional. The exit code is 1 if a
    figure is worse than in the report before, by more than chance explains.
    """
    settings = get_settings()
    folder = (reports or settings.rem_home / REPORTS_FOLDER).expanduser()
    if history:
        _print_history(folder, as_json)
        return
    mode: Mode = "full" if full else "quick"
    previous = (against, read_report(against)) if against else find_previous(folder, mode)
    choices = _list_datasets(
        {"longmemeval": longmemeval, "locomo": locomo, "beam": beam, "documents": documents, "own": own}
    )
    report = _measure(
        settings,
        mode=mode,
        datasets=choices,
        with_week=week,
        week_file=week_file,
        with_audit=audit,
        users=None if all_users else [user],
        tenant=tenant,
        note=note,
    )
    path = write_report(folder, report)
    changes = compare_reports(previous[1], report) if previous else []
    if as_json:
        _print_json(path, report, previous[0] if previous else None, changes)
    else:
        _print_report(report, changes)
        print_to_stderr(f"The report is in {path}" + (f", compared with {previous[0]}." if previous else "."))
    if any(change.verdict == "worse" for change in changes):
        raise typer.Exit(1)


def _list_datasets(paths: dict[str, Any]) -> list[DatasetChoice]:
    """Return the data sets that the user named. Raise InvalidInputError if one does not exist."""
    readers = {
        "longmemeval": lambda path: lambda limit: longmemeval_data.read_dataset(path, limit),
        "locomo": lambda path: lambda limit: locomo_data.read_dataset(path, limit),
        "beam": lambda path: lambda limit: beam_data.read_dataset(path, limit),
        "documents": lambda path: lambda limit: documents_data.read_dataset(path, limit).dataset,
        "own": lambda path: lambda limit: own_data.read_dataset(path[0], path[1], limit),
    }
    return [
        DatasetChoice(name, readers[name](path), QUICK_LIMITS[name]) for name, path in paths.items() if path is not None
    ]


def _measure(settings: Settings, *, users: Sequence[str | None] | None, **options: Any) -> QualityReport:
    audited = None if users is None else [Scope.for_user(user, options["tenant"]) for user in users]
    if not settings.postgres.enabled and options["with_audit"]:
        print_to_stderr("The database is switched off, so there is no memory to audit.")
        options["with_audit"] = False
    plan = QualityPlan(audited=audited, **options)
    run = QualityRun(settings, plan, progress=progress_bar, on_stage=print_stage, on_message=print_to_stderr)
    return run.run(run_async)


def _print_json(path: Path, report: QualityReport, previous: Path | None, changes: Sequence[MetricChange]) -> None:
    metrics = {name: {"value": item.value, "count": item.count} for name, item in report.metrics.items()}
    print_json(
        {
            **report.model_dump(mode="json", exclude={"metrics"}),
            "metrics": metrics,
            "file": path,
            "compared_with": previous,
            "changes": [change.model_dump() for change in changes],
        }
    )


def _print_report(report: QualityReport, changes: Sequence[MetricChange]) -> None:
    """Print every metric, beside its value before."""
    by_name = {change.name: change for change in changes}
    rows = []
    for name, metric in report.metrics.items():
        change = by_name.get(name)
        row = [name, metric.count, f"{metric.value:.3f}"]
        if changes:
            before, noise = (change.before, change.noise) if change else (None, None)
            row += [_format(before), _format(noise, "±"), change.verdict if change else ""]
        rows.append(row)
    print_table(["metric", "cases", "now", *(["before", "noise", "verdict"] if changes else [])], rows)
    if report.counts:
        issues = {check.replace("_", " "): count for check, count in report.counts.items() if check != "statements"}
        found = ", ".join(f"{count} {check}" for check, count in issues.items() if count) or "nothing wrong"
        echo(f"Your memory: {report.counts['statements']} statements, {found}.")
    for name, value in report.speed.items():
        echo(f"{name}: {value:,.1f}")
    versions = report.versions
    echo(f"Measured in {report.seconds:.0f} s with REM {versions['rem']}, {versions['embedder']}, {report.mode}.")


def _format(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{sign}{value:.3f}"


def _print_history(folder: Path, as_json: bool) -> None:
    """Print one line for each report, with the metrics that most of them have."""
    items = list_reports(folder)
    if as_json:
        print_json(
            [
                {
                    "file": path,
                    **report.model_dump(mode="json", include={"made_at", "mode", "note", "versions", "seconds"}),
                    "metrics": {name: metric.value for name, metric in report.metrics.items()},
                }
                for path, report in items
            ]
        )
        return
    if not items:
        print_to_stderr(f"There are no reports in {folder} yet: `python -m bench memory` makes one.")
        return
    counts = Counter(name for _, report in items for name in report.metrics)
    names = [name for name, _ in counts.most_common(MAX_HISTORY_METRICS)]
    rows = [
        [
            f"{report.made_at:%Y-%m-%d %H:%M}",
            report.versions["rem"],
            report.mode,
            *(_format(report.metrics[name].value if name in report.metrics else None) for name in names),
            report.note or "",
        ]
        for _, report in items
    ]
    print_table(["made at", "version", "mode", *names, "note"], rows)
