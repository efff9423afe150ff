"""Let a model answer the questions of a data set from the memory, and judge the answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from uuid import uuid4

import typer

from bench.quality.answers.prompts import Prompts, load_prompts
from bench.quality.answers.report import AnswerFigures, AnswersReport, ModelUse, make_answers_report
from bench.quality.answers.results import AnsweredQuestion, AnswersFile
from bench.quality.answers.run import (
    AnswersOptions,
    AnswersRun,
    ModelCaller,
    choose_questions,
    list_waiting,
    make_header,
)
from bench.quality.dataset import Dataset
from bench.quality.datasets import locomo, longmemeval
from bench.quality.temporary_server import prepare_schema, temporary_server
from rem.app import Rem
from rem.cli.output import print_json, print_table, progress_bar
from rem.cli.runtime import JsonOption, print_to_stderr, run_async
from rem.cli.terminal_text import echo
from rem.search.embedder_factory import open_embedder
from rem.settings import Settings, get_settings

DatasetName: TypeAlias = Literal["longmemeval", "locomo"]
DEFAULT_TOP_K = {"longmemeval": 10, "locomo": 30}
"""Whole sessions of LongMemEval, single messages of LoCoMo."""
FAILED_EXIT_CODE = 6


def answers(
    dataset: Annotated[DatasetName, typer.Argument(help="The data set: longmemeval or locomo.")],
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Its official file, also as .json.gz; or its folder.")],
    reader: Annotated[
        str | None, typer.Option(help="The model that answers, as provider:name. Default: LLM__DEFAULT_MODEL.")
    ] = None,
    judge: Annotated[str | None, typer.Option(help="The model that judges. Default: the reader.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask only N questions, chosen at random.")] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            min=1, max=200, help="The number of sessions (LongMemEval: 10) or messages (LoCoMo: 30) that are read."
        ),
    ] = None,
    context_tokens: Annotated[
        int, typer.Option(min=200, max=2_000_000, help="The maximum number of tokens that are read.")
    ] = 60_000,
    concurrency: Annotated[int, typer.Option(min=1, max=100, help="The number of questions in flight.")] = 4,
    seed: Annotated[int, typer.Option(help="Of the choice of questions, and of the models if they take one.")] = 0,
    reader_prompt: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A prompt with {history}, {question} and {date}.")
    ] = None,
    judge_prompt: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A prompt with {question}, {answer} and {response}; as .yaml, one for each kind of question.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file for the answers.  [default: rem-answers-NAME.jsonl]")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Do not resume: replace the file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure answers on LongMemEval or LoCoMo, judged by a model.

    The memory is a temporary server. An interrupted run is resumed by the same command: no question is asked twice.
    """
    settings = get_settings()
    options = AnswersOptions(reader, judge, top_k or DEFAULT_TOP_K[dataset], context_tokens, concurrency, seed)
    prompts = load_prompts(dataset, reader_prompt, judge_prompt)
    read = longmemeval.read_dataset if dataset == "longmemeval" else locomo.read_dataset
    chosen = choose_questions(read(path), limit, seed)
    report = _run(settings, chosen, prompts, options, output or Path(f"rem-answers-{dataset}.jsonl"), restart)
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    if report.missing:
        print_to_stderr(f"{report.missing} questions are not answered: the same command asks them again.")
        raise typer.Exit(FAILED_EXIT_CODE)


def _run(
    settings: Settings, dataset: Dataset, prompts: Prompts, options: AnswersOptions, path: Path, restart: bool
) -> AnswersReport:
    """Answer what the file does not have yet, and return the report on all answers."""
    models = ModelCaller(settings, options)
    header = make_header(dataset, models, prompts, options, run_async(lambda: _name_embedder(settings)))
    file = AnswersFile(path, header)
    answers = file.load(restart=restart)
    waiting = list_waiting(dataset, answers)
    total = sum(len(case.questions) for case in dataset.cases)
    try:
        if answers:
            print_to_stderr(f"{path} has {len(answers)} of {total} answers already.")
        if waiting.cases:
            with temporary_server(settings, print_to_stderr) as temporary:
                job = _Job(waiting, prompts, options, models, file)
                answers += run_async(lambda: _answer(temporary, job))
    finally:
        file.close()
    print_to_stderr(f"The answers are in {path}.")
    return make_answers_report(file.header, answers, total)


@dataclass(frozen=True, slots=True)
class _Job:
    dataset: Dataset
    prompts: Prompts
    options: AnswersOptions
    models: ModelCaller
    file: AnswersFile


async def _name_embedder(settings: Settings) -> str:
    embedder = open_embedder(settings)
    await embedder.close()
    return embedder.model


async def _answer(settings: Settings, job: _Job) -> list[AnsweredQuestion]:
    await prepare_schema(settings)
    try:
        async with Rem.open(settings, on_progress=print_to_stderr) as rem:
            tenant = f"answers-{uuid4().hex[:8]}"
            run = AnswersRun(rem, job.dataset, job.models, job.prompts, job.options, job.file, tenant=tenant)
            answers = await run.run(progress_bar)
    finally:
        await job.models.close()
    for message in dict.fromkeys(str(error) for error in run.failures):
        print_to_stderr(f"Error: {message}")
    return answers


def _print_report(report: AnswersReport) -> None:
    with_f1 = report.overall.f1 is not None
    rows = [_make_row(kind, figures, with_f1) for kind, figures in report.by_kind.items()]
    if report.answerable.questions != report.overall.questions:
        rows.append(_make_row("all that can be answered", report.answerable, with_f1))
    rows.append(_make_row("overall", report.overall, with_f1))
    print_table(["kind", "questions", "accuracy", *(["F1"] if with_f1 else [])], rows)
    unjudged = report.overall.questions - report.overall.judged
    if unjudged:
        print_to_stderr(f"The judge said neither yes nor no to {unjudged} answers: they count as wrong.")
    header = report.header
    echo(f"Reader  {header.reader}: {_describe_use(report.reader)}")
    echo(f"Judge   {header.judge}: {_describe_use(report.judge)}")
    echo(
        f"Memory  REM {header.rem}, {header.embedder}, {header.top_k} results, "
        f"{report.history_tokens or 0:,.0f} tokens per question"
    )


def _make_row(name: str, figures: AnswerFigures, with_f1: bool) -> list[str | int]:
    shares = [figures.accuracy, *([figures.f1] if with_f1 else [])]
    return [name, figures.questions, *("" if share is None else f"{share:.3f}" for share in shares)]


def _describe_use(use: ModelUse) -> str:
    cost = "price not known" if use.cost is None else f"{use.cost:.2f} US dollars"
    return f"{use.input_tokens:,} tokens in, {use.output_tokens:,} out, {cost}"
