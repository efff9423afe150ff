"""Live through a week of notes and sessions, ask about it, and print the figures."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer

from bench.quality.commands import HereOption
from bench.quality.measurements import MeasuredWeek, WeekOptions, measure_week
from bench.quality.temporary_server import temporary_server
from bench.quality.week.data import GROUPS, read_week
from bench.quality.week.report import StageFigures, WeekReport
from bench.quality.week.run import WeekOutcome
from rem.cli.output import print_json, print_table, shorten
from rem.cli.runtime import JsonOption, print_to_stderr, run_async
from rem.cli.terminal_text import echo
from rem.settings import Settings, get_settings

MAX_MISS_CHARS = 160
SHORT_GROUPS = {"just_said": "said", "other_session": "other", "identifiers": "ids"}
"""Headings of the groups, so that the table fits into 80 columns."""


def week(
    path: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A week as YAML. Default: a week of the repository.")
    ] = None,
    number: Annotated[int, typer.Option(min=1, max=2, help="Which of the weeks of the repository.")] = 1,
    days: Annotated[int, typer.Option(min=1, max=7, help="Only the first N days.")] = 7,
    tickets: Annotated[
        bool, typer.Option("--tickets/--no-tickets", help="Also search 300 similar notes for ticket numbers.")
    ] = True,
    nights: Annotated[
        bool, typer.Option("--nights/--no-nights", help="Dream every night and ask everything again.")
    ] = True,
    misses: Annotated[
        bool, typer.Option("--misses", help="List the questions without the right answer first.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Fail with exit code 1 if a limit is broken.")] = False,
    here: HereOption = False,
    as_json: JsonOption = False,
) -> None:
    """Live through a week of notes and sessions, and ask about it.

    The messages go through chat with the model rem:local, the notes through the ingester, and dreams run every night.
    """
    data = read_week(path, number)
    tenant = f"bench-week-{uuid4().hex[:8]}"

    def measure(settings: Settings, *, is_new_server: bool) -> Coroutine[None, None, MeasuredWeek]:
        options = WeekOptions(days, with_nights=nights, with_tickets=tickets)
        return measure_week(
            settings,
            data,
            options,
            tenant=tenant,
            on_stage=print_stage,
            on_message=print_to_stderr,
            is_new_server=is_new_server,
        )

    if here:
        report = run_async(lambda: measure(get_settings(), is_new_server=False)).report
        print_to_stderr(f"The data stays in the tenant {tenant}.")
    else:
        with temporary_server(get_settings(), print_to_stderr) as settings:
            report = run_async(lambda: measure(settings, is_new_server=True)).report
    if as_json:
        print_json(report)
    else:
        _print_week(report, misses)
    if check and report.broken_limits:
        raise typer.Exit(1)


def print_stage(stage: str, outcomes: list[WeekOutcome]) -> None:
    """Print the figures of a stage on standard error while the week goes on."""
    if outcomes:
        figures = StageFigures.of(outcomes)
        print_to_stderr(f"{stage}: {figures.questions} questions, {figures.first:.0%} first, {figures.among:.0%} among")


def _print_week(report: WeekReport, with_misses: bool) -> None:
    """Print the figures by stage and group, what was derived from questions, and the broken limits."""
    echo(f"{report.week}: {report.notes} notes, {report.sessions} sessions, {report.questions} questions.")
    for title, share in (("Right answer first", "first"), ("Right answer among the extracts", "among")):
        echo(f"\n{title}:")
        labels = [SHORT_GROUPS.get(group, group) for group in GROUPS]
        print_table(["stage", "n", "all", *labels], _week_rows(report, share))
    for name, counts in report.derived.items():
        echo(f"{name.capitalize()} from questions: {len(counts['of_questions'])} of {counts['all']}")
    echo(f"Messages with a wrong kind: {len(report.misread)}")
    if report.people:
        found, people = list(report.people.values())[-1]
        missing = f" (not {', '.join(report.missing_people)})" if report.missing_people else ""
        echo(f"People found by LOOKUP: {found} of {people}{missing}")
    if report.tickets is not None:
        echo(f"Tickets first: {report.tickets.searches - len(report.tickets.missed)} of {report.tickets.searches}")
    echo(
        f"Took {report.seconds:.0f} s, {report.dream_seconds:.0f} s of it for dreams; "
        f"{report.milliseconds_per_question:.0f} ms per question"
    )
    if with_misses:
        _print_misses(report)
    for limit in report.broken_limits:
        echo(f"Broken limit: {limit}")
    if not report.broken_limits:
        echo("All limits are kept.")


def _print_misses(report: WeekReport) -> None:
    """Print each question without the right answer first: what was expected, its rank, and what came first."""
    for miss in report.misses:
        rank = f"rank {miss['rank']}" if miss["rank"] else "not found"
        echo(f"\n{miss['stage']}, {miss['group']}: {miss['question']}")
        echo(f"  expected: {' | '.join(miss['answer'])} ({rank}; from {miss['source']})")
        echo(f"  first:    {shorten(miss['first'], MAX_MISS_CHARS)}")
    for message in report.misread:
        echo(f"\n{message.kind} stored as {message.stored_kind}: {message.text}")
    echo("")


def _week_rows(report: WeekReport, share: str) -> list[list[str | int]]:
    """Return a row for each stage: the number of questions, and the share of right answers in all and in each group."""
    return [
        [
            stage,
            figures.questions,
            f"{getattr(figures, share):.0%}",
            *(_format_share(report.groups[stage].get(group), share) for group in GROUPS),
        ]
        for stage, figures in report.stages.items()
    ]


def _format_share(figures: StageFigures | None, share: str) -> str:
    return "" if figures is None else f"{getattr(figures, share):.0%}"
