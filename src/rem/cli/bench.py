"""`rem bench …`: how well and how fast a memory answers, on published data sets or on one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from rem.cli.runtime import JsonOption, print_to_stderr, run_async

if TYPE_CHECKING:
    from rem.evals.dataset import Dataset
    from rem.evals.report import BenchmarkReport
    from rem.evals.retrieval_benchmark import QuestionOutcome
    from rem.settings import Settings

app = typer.Typer(
    help="Measure how well and how fast a memory answers: on published data sets, or on your own.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Mode: TypeAlias = Literal["hybrid", "vector", "text"]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="Where one line for each question goes.  [default: rem-bench-NAME.jsonl, in this folder]"
    ),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first N memories, for a quick look.")]
How = Annotated[Mode, typer.Option(help="What SEARCH goes by.")]
Concurrency = Annotated[int, typer.Option(min=1, max=100, help="How many questions are asked at the same time.")]
Here = Annotated[
    bool,
    typer.Option(
        "--here",
        help="Use the configured database and leave the data there, in a tenant of its own. Without it: a temporary "
        "server, which is removed at the end.",
    ),
]

Dream = Annotated[
    bool, typer.Option("--dream", help="Sleep on it before asking: derive moments and relations, without a model.")
]


@app.command()
def longmemeval(
    path: Annotated[Path, typer.Argument(help="longmemeval_s.json or the like, also as .json.gz, or its folder.")],
    limit: Limit = None,
    mode: How = "hybrid",
    concurrency: Concurrency = 1,
    output: Output = None,
    here: Here = False,
    dream: Dream = False,
    as_json: JsonOption = False,
) -> None:
    """LongMemEval: every question has a history of its own; found are the sessions that answer it."""
    from rem.evals.datasets.longmemeval import read

    _measure(read(path, limit), mode, concurrency, output, here, dream, as_json)


@app.command()
def locomo(
    path: Annotated[Path, typer.Argument(help="locomo10.json or the like, also as .json.gz, or its folder.")],
    limit: Limit = None,
    mode: How = "hybrid",
    concurrency: Concurrency = 1,
    output: Output = None,
    here: Here = False,
    dream: Dream = False,
    as_json: JsonOption = False,
) -> None:
    """LoCoMo: long conversations of two friends; found are the turns that answer a question."""
    from rem.evals.datasets.locomo import read

    _measure(read(path, limit), mode, concurrency, output, here, dream, as_json)


@app.command()
def beam(
    path: Annotated[Path, typer.Argument(help="The archive of one size (.tar.gz), or the folder that it becomes.")],
    limit: Limit = None,
    mode: How = "hybrid",
    concurrency: Concurrency = 1,
    output: Output = None,
    here: Here = False,
    dream: Dream = False,
    as_json: JsonOption = False,
) -> None:
    """BEAM: long chats with an assistant; found are the messages that answer a question."""
    from rem.evals.datasets.beam import read

    _measure(read(path, limit), mode, concurrency, output, here, dream, as_json)


@app.command()
def own(
    corpus: Annotated[
        Path,
        typer.Argument(help='Lines of {"id", "text"}; if you like with "session", "role", "time", "user".'),
    ],
    questions: Annotated[
        Path,
        typer.Argument(help='Lines of {"question", "expected": [id, ...]}; if you like with "id", "kind", "user".'),
    ],
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N questions, for a quick look.")] = None,
    mode: How = "hybrid",
    concurrency: Concurrency = 1,
    output: Output = None,
    here: Here = False,
    dream: Dream = False,
    as_json: JsonOption = False,
) -> None:
    """Your own: texts (or messages, if they name a session) and questions, as files of JSON lines."""
    from rem.evals.datasets.own import read

    _measure(read(corpus, questions, limit), mode, concurrency, output, here, dream, as_json)


def _measure(
    dataset: Dataset, mode: Mode, concurrency: int, output: Path | None, here: bool, dream: bool, as_json: bool
) -> None:
    """Run the benchmark, print its figures, write its rows."""
    from uuid import uuid4

    from rem.cli.bench_report import print_report, require_writable, write_rows
    from rem.cli.output import print_json
    from rem.evals.report import as_json as report_as_json
    from rem.evals.temporary_server import temporary_server
    from rem.settings import get_settings

    rows = output or Path(f"rem-bench-{dataset.name}.jsonl")
    require_writable(rows)
    tenant = f"bench-{dataset.name}-{uuid4().hex[:8]}"
    if here:
        report, outcomes = run_async(lambda: _run(get_settings(), dataset, tenant, mode, concurrency, dream))
    else:
        with temporary_server(get_settings(), print_to_stderr) as settings:
            report, outcomes = run_async(lambda: _run(settings, dataset, tenant, mode, concurrency, dream, is_new=True))
    if as_json:
        print_json({**report_as_json(report), "rows": rows.absolute()})
    else:
        print_report(report)
    write_rows(rows, dataset, outcomes)
    print_to_stderr(f"One line for each question is in {rows}.")
    if here:
        print_to_stderr(f"The data stays in the tenant {tenant}.")


async def _run(
    settings: Settings, dataset: Dataset, tenant: str, mode: Mode, concurrency: int, dream: bool, is_new: bool = False
) -> tuple[BenchmarkReport, list[QuestionOutcome]]:
    from rem.app import Rem
    from rem.cli.output import progress_bar
    from rem.evals.report import make_report
    from rem.evals.retrieval_benchmark import RetrievalBenchmark
    from rem.evals.temporary_server import prepare_schema

    if is_new:
        await prepare_schema(settings)
    async with Rem.open(settings, on_progress=print_to_stderr) as rem:
        measurement = RetrievalBenchmark(rem, dataset, tenant=tenant, mode=mode, concurrency=concurrency)
        try:
            with progress_bar("Storing") as on_rows:
                await measurement.store(on_rows)
            with progress_bar("Indexing") as on_rows:
                await measurement.index(on_rows)
            if dream:
                with progress_bar("Dreaming") as on_users:
                    await measurement.dream(on_users)
            with progress_bar("Asking") as on_questions:
                outcomes = await measurement.ask(on_questions)
        except BaseException:
            await measurement.erase()
            raise
        configuration = await measurement.configuration(settings)
        return make_report(dataset, outcomes, measurement.timing, configuration), outcomes
