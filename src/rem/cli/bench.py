"""`rem bench`: measure retrieval on published data sets or on your own, and print the report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from rem.cli.runtime import JsonOption, print_to_stderr, run_async

if TYPE_CHECKING:
    from rem.evals.dataset import Dataset
    from rem.evals.report import BenchmarkReport, Figures, Latency
    from rem.evals.retrieval_benchmark import QuestionOutcome
    from rem.settings import Settings

app = typer.Typer(
    help="Measure retrieval on data sets, published or your own.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Mode: TypeAlias = Literal["hybrid", "vector", "text"]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="The file for the results of the questions.  [default: rem-bench-NAME.jsonl]"),
]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Use only the first N memories.")]
ModeOption = Annotated[Mode, typer.Option(help="The mode of SEARCH.")]
ConcurrencyOption = Annotated[
    int, typer.Option(min=1, max=100, help="The number of questions that are asked in parallel.")
]
HereOption = Annotated[
    bool,
    typer.Option(
        "--here",
        help="Use the configured database and leave the data there, in a new tenant. Default: a temporary server, "
        "which is removed at the end.",
    ),
]

DreamOption = Annotated[
    bool,
    typer.Option("--dream", help="Run dreams before asking: derive moments and relations, without a language model."),
]


@app.command()
def longmemeval(
    path: Annotated[
        Path, typer.Argument(help="The file, such as longmemeval_s.json, also as .json.gz; or its folder.")
    ],
    limit: LimitOption = None,
    mode: ModeOption = "hybrid",
    concurrency: ConcurrencyOption = 1,
    output: OutputOption = None,
    here: HereOption = False,
    dream: DreamOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run LongMemEval: find the sessions that answer a question."""
    from rem.evals.datasets.longmemeval import read_dataset

    _run_benchmark(read_dataset(path, limit), mode, concurrency, output, here, dream, as_json)


@app.command()
def locomo(
    path: Annotated[Path, typer.Argument(help="The file, such as locomo10.json, also as .json.gz; or its folder.")],
    limit: LimitOption = None,
    mode: ModeOption = "hybrid",
    concurrency: ConcurrencyOption = 1,
    output: OutputOption = None,
    here: HereOption = False,
    dream: DreamOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run LoCoMo: find the messages that answer a question."""
    from rem.evals.datasets.locomo import read_dataset

    _run_benchmark(read_dataset(path, limit), mode, concurrency, output, here, dream, as_json)


@app.command()
def beam(
    path: Annotated[Path, typer.Argument(help="The archive of one size (.tar.gz), or the unpacked folder.")],
    limit: LimitOption = None,
    mode: ModeOption = "hybrid",
    concurrency: ConcurrencyOption = 1,
    output: OutputOption = None,
    here: HereOption = False,
    dream: DreamOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run BEAM: find the messages that answer a question."""
    from rem.evals.datasets.beam import read_dataset

    _run_benchmark(read_dataset(path, limit), mode, concurrency, output, here, dream, as_json)


@app.command()
def own(
    corpus: Annotated[
        Path,
        typer.Argument(help='JSON lines of {"id", "text"}, optionally with "session", "role", "time", "user".'),
    ],
    questions: Annotated[
        Path,
        typer.Argument(help='JSON lines of {"question", "expected": [id, ...]}, optionally with "id", "kind", "user".'),
    ],
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N questions.")] = None,
    mode: ModeOption = "hybrid",
    concurrency: ConcurrencyOption = 1,
    output: OutputOption = None,
    here: HereOption = False,
    dream: DreamOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure retrieval on your own corpus and questions."""
    from rem.evals.datasets.own import read_dataset

    _run_benchmark(read_dataset(corpus, questions, limit), mode, concurrency, output, here, dream, as_json)


def _run_benchmark(
    dataset: Dataset, mode: Mode, concurrency: int, output: Path | None, here: bool, dream: bool, as_json: bool
) -> None:
    """Run the benchmark, print the report, and write one line of JSON for each question."""
    from dataclasses import asdict
    from uuid import uuid4

    from rem.cli.output import print_json
    from rem.evals.temporary_server import temporary_server
    from rem.settings import get_settings

    path = output or Path(f"rem-bench-{dataset.name}.jsonl")
    _require_writable(path)
    tenant = f"bench-{dataset.name}-{uuid4().hex[:8]}"
    if here:
        report, outcomes = run_async(lambda: _measure(get_settings(), dataset, tenant, mode, concurrency, dream))
    else:
        with temporary_server(get_settings(), print_to_stderr) as settings:
            report, outcomes = run_async(
                lambda: _measure(settings, dataset, tenant, mode, concurrency, dream, is_new_server=True)
            )
    if as_json:
        print_json({**asdict(report), "rows": path.absolute()})
    else:
        _print_report(report)
    _write_outcomes(path, dataset, outcomes)
    print_to_stderr(f"The results of the questions are in {path}.")
    if here:
        print_to_stderr(f"The data stays in the tenant {tenant}.")


async def _measure(
    settings: Settings,
    dataset: Dataset,
    tenant: str,
    mode: Mode,
    concurrency: int,
    dream: bool,
    is_new_server: bool = False,
) -> tuple[BenchmarkReport, list[QuestionOutcome]]:
    """Store, index and ask the data set with progress bars. Erase its data after an error or Ctrl-C."""
    from rem.app import Rem
    from rem.cli.output import progress_bar
    from rem.evals.report import make_report
    from rem.evals.retrieval_benchmark import RetrievalBenchmark
    from rem.evals.temporary_server import prepare_schema

    if is_new_server:
        await prepare_schema(settings)
    async with Rem.open(settings, on_progress=print_to_stderr) as rem:
        benchmark = RetrievalBenchmark(rem, dataset, tenant=tenant, mode=mode, concurrency=concurrency)
        try:
            with progress_bar("Storing") as on_rows:
                await benchmark.store(on_rows)
            with progress_bar("Indexing") as on_rows:
                await benchmark.index(on_rows)
            if dream:
                with progress_bar("Dreaming") as on_users:
                    await benchmark.dream(on_users)
            with progress_bar("Asking") as on_questions:
                outcomes = await benchmark.ask(on_questions)
        except BaseException:
            await benchmark.erase()
            raise
        configuration = await benchmark.configuration(settings)
        return make_report(dataset, outcomes, benchmark.timing, configuration), outcomes


def _print_report(report: BenchmarkReport) -> None:
    """Print the metrics overall and by kind of question, latency, throughput and configuration."""
    from rem.cli.output import format_count, print_table

    unscored = f", {report.unjudged} of them without a known answer" if report.unjudged else ""
    memories = f"{report.memories} {'memory' if report.memories == 1 else 'memories'}"
    typer.echo(f"{report.dataset}: {format_count(report.questions, 'question')}{unscored}, asked of {memories}.")
    names = list(report.overall.metrics)
    kinds = report.by_kind if len(report.by_kind) > 1 else {}
    rows = [_metrics_row(kind, figures, names) for kind, figures in kinds.items()]
    print_table(["kind", "judged", *names], [*rows, _metrics_row("overall", report.overall, names)])
    whole, without_embedding = report.latency_ms["whole"], report.latency_ms["without_embedding"]
    typer.echo(
        f"Latency     {_format_latency(whole)}; without embedding the question: {_format_latency(without_embedding)}"
    )
    throughput = report.throughput
    typer.echo(
        f"Throughput  {format_count(throughput.rows, 'row')} stored in {throughput.store_seconds:.1f} s and indexed in "
        f"{throughput.index_seconds:.1f} s: {_format_number(throughput.rows_per_second)} rows/s"
    )
    if throughput.dream_seconds:
        typer.echo(f"Dreaming    {throughput.dream_seconds:.1f} s")
    configuration = report.configuration
    embedder = "no embedder" if configuration["embedder"] == "none" else configuration["embedder"]
    typer.echo(f"Made with   REM {configuration['rem']}, {embedder}, mode {configuration['mode']}")
    _print_notes(report)


def _print_notes(report: BenchmarkReport) -> None:
    """Print on standard error what was skipped, and the notes of the searches."""
    from rem.cli.output import format_count

    if report.dropped_gold_ids:
        print_to_stderr(f"Skipped: {format_count(report.dropped_gold_ids, 'evidence id')} that do not exist.")
    if report.blank_messages:
        print_to_stderr(f"Skipped: {format_count(report.blank_messages, 'blank message')}.")
    for note, count in report.notes.items():
        print_to_stderr(f"Note of {format_count(count, 'result')}: {note}")


def _metrics_row(name: str, figures: Figures, metrics: Sequence[str]) -> list[str | int]:
    return [name, figures.questions, *(_format_metric(figures.metrics[metric]) for metric in metrics)]


def _format_metric(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _format_latency(latency: Latency) -> str:
    return f"p50 {_format_number(latency.p50)} ms, p95 {_format_number(latency.p95)} ms"


def _require_writable(path: Path) -> None:
    """Raise InvalidInputError if the file cannot be written. Without this check, a long run would fail at its end."""
    from rem.errors import InvalidInputError

    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder: name a file for --output.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "it is not writable" if path.parent.is_dir() else f"there is no folder {path.parent}"
        raise InvalidInputError(f"{path} cannot be written: {reason}. Name another file with --output.")


def _write_outcomes(path: Path, dataset: Dataset, outcomes: Sequence[QuestionOutcome]) -> None:
    """Write one line of JSON for each question."""
    import orjson

    from rem.db.dump import open_for_replacement
    from rem.evals.report import outcome_rows

    with open_for_replacement(path) as stream:
        for row in outcome_rows(dataset, outcomes):
            stream.write(orjson.dumps(row).decode() + "\n")
