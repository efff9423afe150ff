"""Measure retrieval on published data sets or on your own, and print the report."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from uuid import uuid4

import orjson
import typer

from bench.quality.dataset import Dataset
from bench.quality.datasets.beam import read_dataset as read_beam
from bench.quality.datasets.documents import DocumentSet
from bench.quality.datasets.documents import read_dataset as read_documents
from bench.quality.datasets.locomo import read_dataset as read_locomo
from bench.quality.datasets.longmemeval import read_dataset as read_longmemeval
from bench.quality.datasets.own import read_dataset as read_own
from bench.quality.documents import DocumentsBenchmark, DocumentsReport
from bench.quality.measurements import measure_retrieval
from bench.quality.report import BenchmarkReport, Figures, Latency, outcome_rows
from bench.quality.retrieval_benchmark import QuestionOutcome
from bench.quality.temporary_server import prepare_schema, temporary_server
from rem.app import Rem
from rem.cli.output import format_count, print_json, print_table, progress_bar
from rem.cli.runtime import JsonOption, print_to_stderr, run_async
from rem.cli.terminal_text import echo
from rem.db.dump import open_for_replacement
from rem.errors import InvalidInputError
from rem.settings import Settings, get_settings

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
    _run_benchmark(read_longmemeval(path, limit), mode, concurrency, output, here, dream, as_json)


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
    _run_benchmark(read_locomo(path, limit), mode, concurrency, output, here, dream, as_json)


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
    _run_benchmark(read_beam(path, limit), mode, concurrency, output, here, dream, as_json)


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
    _run_benchmark(read_own(corpus, questions, limit), mode, concurrency, output, here, dream, as_json)


def documents(
    folder: Annotated[
        Path, typer.Argument(help="A folder in the layout of BEIR: corpus.jsonl, queries.jsonl and qrels/test.tsv.")
    ],
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N questions.")] = None,
    here: HereOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure SEARCH on documents, beside plain BM25."""
    collection = read_documents(folder, limit)
    tenant = f"bench-documents-{uuid4().hex[:8]}"
    if here:
        report = run_async(lambda: _measure_documents(get_settings(), collection, tenant))
        print_to_stderr(f"The data stays in the tenant {tenant}.")
    else:
        with temporary_server(get_settings(), print_to_stderr) as settings:
            report = run_async(lambda: _measure_documents(settings, collection, tenant, is_new_server=True))
    if as_json:
        print_json(report)
    else:
        _print_documents(report)


async def _measure_documents(
    settings: Settings, documents: DocumentSet, tenant: str, is_new_server: bool = False
) -> DocumentsReport:
    """Store, index and ask the documents with progress bars. Erase the data after an error or Ctrl-C."""
    if is_new_server:
        await prepare_schema(settings)
    async with Rem.open(settings, on_progress=print_to_stderr) as rem:
        benchmark = DocumentsBenchmark(rem, documents, tenant=tenant, language=settings.search.language)
        try:
            with progress_bar("Storing") as on_rows:
                await benchmark.retrieval.store(on_rows)
            with progress_bar("Indexing") as on_rows:
                await benchmark.retrieval.index(on_rows)
            with progress_bar("Asking") as on_questions:
                return await benchmark.measure(on_questions)
        except BaseException:
            await benchmark.retrieval.erase()
            raise


def _print_documents(report: DocumentsReport) -> None:
    echo(f"{format_count(report.documents, 'document')}, {format_count(report.questions, 'question')}.")
    names = {"hybrid": "SEARCH", "text": "SEARCH … MODE text", "vector": "SEARCH … MODE vector"}
    names |= {"bm25": "plain BM25", "fusion": "rank fusion of BM25 and vectors"}
    rows = [
        [
            names[name],
            _format_metric(figures.ndcg),
            _format_metric(figures.recall),
            _format_number(figures.milliseconds),
        ]
        for name, figures in report.rankings.items()
    ]
    print_table(["ranking", "ndcg@10", "recall@10", "p50 ms"], rows)
    if report.dropped_judgements:
        print_to_stderr(f"Skipped: {format_count(report.dropped_judgements, 'judgement')} of unknown ids.")


def _run_benchmark(
    dataset: Dataset, mode: Mode, concurrency: int, output: Path | None, here: bool, dream: bool, as_json: bool
) -> None:
    """Run the benchmark, print the report, and write one line of JSON for each question."""
    path = output or Path(f"rem-bench-{dataset.name}.jsonl")
    _require_writable(path)
    tenant = f"bench-{dataset.name}-{uuid4().hex[:8]}"

    def measure(
        settings: Settings, *, is_new_server: bool
    ) -> Coroutine[None, None, tuple[BenchmarkReport, list[QuestionOutcome]]]:
        return measure_retrieval(
            settings,
            dataset,
            tenant=tenant,
            mode=mode,
            concurrency=concurrency,
            dream=dream,
            progress=progress_bar,
            on_message=print_to_stderr,
            is_new_server=is_new_server,
        )

    if here:
        report, outcomes = run_async(lambda: measure(get_settings(), is_new_server=False))
    else:
        with temporary_server(get_settings(), print_to_stderr) as settings:
            report, outcomes = run_async(lambda: measure(settings, is_new_server=True))
    if as_json:
        print_json({**asdict(report), "rows": path.absolute()})
    else:
        _print_report(report)
    _write_outcomes(path, dataset, outcomes)
    print_to_stderr(f"The results of the questions are in {path}.")
    if here:
        print_to_stderr(f"The data stays in the tenant {tenant}.")


def _print_report(report: BenchmarkReport) -> None:
    """Print the metrics overall and by kind of question, latency, throughput and configuration."""
    unscored = f", {report.unjudged} of them without a known answer" if report.unjudged else ""
    memories = f"{report.memories} {'memory' if report.memories == 1 else 'memories'}"
    echo(f"{report.dataset}: {format_count(report.questions, 'question')}{unscored}, asked of {memories}.")
    names = list(report.overall.metrics)
    kinds = report.by_kind if len(report.by_kind) > 1 else {}
    rows = [_metrics_row(kind, figures, names) for kind, figures in kinds.items()]
    print_table(["kind", "judged", *names], [*rows, _metrics_row("overall", report.overall, names)])
    whole, without_embedding = report.latency_ms["whole"], report.latency_ms["without_embedding"]
    echo(f"Latency     {_format_latency(whole)}; without embedding the question: {_format_latency(without_embedding)}")
    throughput = report.throughput
    echo(
        f"Throughput  {format_count(throughput.rows, 'row')} stored in {throughput.store_seconds:.1f} s and indexed in "
        f"{throughput.index_seconds:.1f} s: {_format_number(throughput.rows_per_second)} rows/s"
    )
    if throughput.dream_seconds:
        echo(f"Dreaming    {throughput.dream_seconds:.1f} s")
    configuration = report.configuration
    embedder = "no embedder" if configuration["embedder"] == "none" else configuration["embedder"]
    echo(f"Made with   REM {configuration['rem']}, {embedder}, mode {configuration['mode']}")
    _print_notes(report)


def _print_notes(report: BenchmarkReport) -> None:
    """Print on standard error what was skipped, and the notes of the searches."""
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
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder: name a file for --output.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "it is not writable" if path.parent.is_dir() else f"there is no folder {path.parent}"
        raise InvalidInputError(f"{path} cannot be written: {reason}. Name another file with --output.")


def _write_outcomes(path: Path, dataset: Dataset, outcomes: Sequence[QuestionOutcome]) -> None:
    """Write one line of JSON for each question."""
    with open_for_replacement(path) as stream:
        for row in outcome_rows(dataset, outcomes):
            stream.write(orjson.dumps(row).decode() + "\n")
