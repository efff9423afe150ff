"""What a benchmark found out: a table for people, and a line for each question."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import typer

from rem.cli.output import format_count, print_table
from rem.cli.runtime import print_to_stderr
from rem.db.dump import open_for_replacement
from rem.errors import InvalidInputError
from rem.evals.report import question_rows

if TYPE_CHECKING:
    from rem.evals.dataset import Dataset
    from rem.evals.report import BenchmarkReport, Figures, Latency
    from rem.evals.retrieval_benchmark import QuestionOutcome


def print_report(report: BenchmarkReport) -> None:
    """The figures, overall and by kind, and beside them what one should know to read them."""
    judged = f", {report.unjudged} of them without a known answer" if report.unjudged else ""
    memories = f"{report.memories} {'memory' if report.memories == 1 else 'memories'}"
    typer.echo(f"{report.dataset}: {format_count(report.questions, 'question')}{judged}, asked of {memories}.")
    names = list(report.overall.metrics)
    kinds = report.by_kind if len(report.by_kind) > 1 else {}
    rows = [_row(kind, figures, names) for kind, figures in kinds.items()]
    print_table(["kind", "judged", *names], [*rows, _row("overall", report.overall, names)])
    whole, rest = report.latency_ms["whole"], report.latency_ms["without_embedding"]
    typer.echo(f"Latency     {_latency(whole)}; without embedding the question: {_latency(rest)}")
    done = report.throughput
    typer.echo(
        f"Throughput  {format_count(done.rows, 'row')} stored in {done.store_seconds:.1f} s and indexed in "
        f"{done.index_seconds:.1f} s: {_number(done.rows_per_second)} rows/s"
    )
    if done.dream_seconds:
        typer.echo(f"Dreaming    {done.dream_seconds:.1f} s")
    made_with = report.configuration
    embedder = "no embedder" if made_with["embedder"] == "none" else made_with["embedder"]
    typer.echo(f"Made with   REM {made_with['rem']}, {embedder}, mode {made_with['mode']}")
    _tell_what_is_special(report)


def _tell_what_is_special(report: BenchmarkReport) -> None:
    if report.dropped_gold_ids:
        print_to_stderr(
            f"Left out: {format_count(report.dropped_gold_ids, 'evidence id')} that nothing in its memory has."
        )
    if report.blank_messages:
        print_to_stderr(f"Left out: {format_count(report.blank_messages, 'message')} without a word.")
    for note, times in report.notes.items():
        print_to_stderr(f"{format_count(times, 'answer')} said: {note}")


def _row(name: str, figures: Figures, metrics: Sequence[str]) -> list[str | int]:
    return [name, figures.questions, *(_share(figures.metrics[metric]) for metric in metrics)]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _latency(latency: Latency) -> str:
    return f"p50 {_number(latency.p50)} ms, p95 {_number(latency.p95)} ms"


def require_writable(path: Path) -> None:
    """An error now, and not after an hour, if the file cannot be written."""
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder: name a file for --output.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "it is not writable" if path.parent.is_dir() else f"there is no folder {path.parent}"
        raise InvalidInputError(f"{path} cannot be written: {reason}. Name another file by --output.")


def write_rows(path: Path, dataset: Dataset, outcomes: Sequence[QuestionOutcome]) -> None:
    """One line of JSON for each question."""
    with open_for_replacement(path) as stream:
        for row in question_rows(dataset, outcomes):
            stream.write(orjson.dumps(row).decode() + "\n")
