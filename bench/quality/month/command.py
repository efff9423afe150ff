"""Ask about a month of two people, and print how often the first words of an answer hold what was asked for."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer

from bench.quality.month.check import find_problems
from bench.quality.month.data import GROUPS, Month, read_month
from bench.quality.month.report import MonthReport, Share, make_month_report
from bench.quality.month.run import BEFORE, MonthRun
from bench.quality.retrieval_benchmark import OnProgress
from bench.quality.temporary_server import prepare_schema, temporary_server
from rem.app import Rem
from rem.cli.output import print_json, print_table, progress_bars, shorten
from rem.cli.runtime import JsonOption, print_to_stderr, run_async
from rem.cli.terminal_text import echo
from rem.settings import Settings, get_settings

NIGHTS = (1, 3)
"""The nights after which everything is asked again."""
MAX_MISS_CHARS = 240
SECONDS_PER_LINE = 30
"""Without a terminal, a line tells the progress this often."""


def _parse_groups(value: str | None) -> list[str]:
    groups = value.split(",") if value else [*map(str, GROUPS)]
    for group in groups:
        if group not in GROUPS:
            raise typer.BadParameter(f"{group!r} is none of {', '.join(GROUPS)}.")
    return groups


def month(
    path: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="A month. Default: a month of the repository.")
    ] = None,
    number: Annotated[int, typer.Option(min=1, max=2, help="Which of the months of the repository.")] = 1,
    groups: Annotated[str | None, typer.Option(help="Only these groups of questions, with commas between.")] = None,
    nights: Annotated[
        bool, typer.Option("--nights/--no-nights", help="Ask everything again after one night and after three.")
    ] = True,
    misses: Annotated[bool, typer.Option("--misses", help="List the questions without a right answer.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only check the texts and questions. Exit code 1 if something is wrong.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask about a month of notes and talks of two people, without a language model.

    Counts how often the first 40 visible words hold the whole answer and nothing outdated.
    """
    chosen = _parse_groups(groups)
    data = read_month(path, number)
    if check:
        _check(data)
        return
    data = data.keep_groups(chosen)
    with temporary_server(get_settings(), print_to_stderr) as settings:
        report = run_async(lambda: _measure(settings, data, NIGHTS if nights else ()))
    if as_json:
        print_json(report)
    else:
        _print_month(report, misses)


def _check(data: Month) -> None:
    problems = find_problems(data)
    for problem in problems:
        echo(problem)
    if problems:
        raise typer.Exit(1)
    echo(f"{len(data.questions)} questions: nothing is wrong.")


async def _measure(settings: Settings, data: Month, nights: tuple[int, ...]) -> MonthReport:
    llm = settings.llm.model_copy(update={"default_model": None})
    settings = settings.model_copy(update={"llm": llm})
    await prepare_schema(settings)
    with ExitStack() as bars:

        def start_step(label: str) -> OnProgress:
            bars.close()
            (on_progress,) = bars.enter_context(progress_bars(label, line_seconds=SECONDS_PER_LINE))
            return on_progress

        async with Rem.open(settings, on_progress=print_to_stderr) as rem:
            run = MonthRun(rem, data, tenant=f"bench-month-{uuid4().hex[:8]}")
            return make_month_report(data, await run.run(nights, start_step))


def _print_month(report: MonthReport, with_misses: bool) -> None:
    """Print the figures by stage and group, and what the nights changed."""
    echo(f"Month {report.month}: {report.notes} notes, {report.talks} talks, {report.questions} questions.")
    for stage, figures in report.stages.items():
        title = "Before any night" if stage == BEFORE else f"After {stage}"
        echo(f"\n{title} (95 % interval in brackets):")
        rows = [
            [name, figure.right40.n, _format(figure.right40), _format(figure.right_all), f"{figure.words:.0f}"]
            for name, figure in figures.items()
        ]
        print_table(["group", "n", "right in 40 words", "right in all", "words"], [*rows[1:], *rows[:1]])
        if silence := report.unanswerable.get(stage):
            echo(
                f"Unanswerable ({silence.silent.n}): says so and stops {_format(silence.silent)}, nearest "
                f"{_format(silence.nearest)}, false answer {_format(silence.false)}, {silence.words:.0f} words"
            )
        if change := report.changes.get(stage):
            echo(f"Answers that are better: {len(change.better)}; worse: {len(change.worse)} {' '.join(change.worse)}")
    echo(f"\n{report.milliseconds_per_question:.0f} ms per question")
    if with_misses:
        for miss in (answer for answer in report.answers if not answer["is_good"]):
            echo(f"\n{miss['stage']}, {miss['group']}, {miss['id']}: {miss['question']}")
            echo(f"  expected: {miss['expected']} without {miss['forbidden']}")
            echo(f"  {miss['status']} in {miss['words']} words: {shorten(miss['answer'], MAX_MISS_CHARS)}")


def _format(share: Share) -> str:
    return f"{share.share:.0%} ({share.low:.0%} to {share.high:.0%})"
