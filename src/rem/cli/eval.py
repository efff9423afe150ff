"""`rem eval`: run agents and queries on golden sets, judge their outputs, and compare the results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rem.cli import eval_golden, eval_phoenix
from rem.cli.eval_output import print_case, print_failures, print_outcome, print_summary, require_no_regression
from rem.cli.eval_workbench import Gates, RunOutcome, Workbench, with_workbench
from rem.cli.runtime import JsonOption, TenantOption, UserOption, YesOption, confirm, print_to_stderr
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.evals.experiment_report import RunComparison, RunSummary
    from rem.evals.experiment_store import ExperimentRun, StoredCase

app = typer.Typer(
    help="Evaluate agents and queries with golden sets.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(eval_golden.app, name="golden")
app.add_typer(eval_phoenix.app, name="phoenix")

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run: its name for the latest, name#number, or its id.")
]
EvaluatorOption = Annotated[
    list[str] | None,
    typer.Option(
        "--evaluator", "-e", help="An evaluator: its name, or a YAML file. Repeat it. `rem eval evaluators` lists all."
    ),
]
JudgeModelOption = Annotated[
    str | None,
    typer.Option(help="The model of the evaluators that need one.  [default: the evaluator's, or LLM__DEFAULT_MODEL]"),
]
ConcurrencyOption = Annotated[int, typer.Option(min=1, max=64, help="The number of cases in flight.")]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="The folder for the files of the run.  [default: a folder in REM_HOME]"),
]
BaselineOption = Annotated[
    str | None,
    typer.Option(help="A run to compare with, or `previous`. If the new run is worse, the exit code is 7."),
]
ToleranceOption = Annotated[
    float, typer.Option(min=0, help="How much a mean may get worse before it counts as a regression.")
]
MinPassRateOption = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="The share of cases that must pass. If fewer pass, the exit code is 8."),
]


@app.command()
def run(
    golden: Annotated[Path, typer.Argument(metavar="GOLDEN", help="The golden set: a .yaml, .jsonl or .csv file.")],
    agent: Annotated[str | None, typer.Option("--agent", "-a", help="Measure this agent.")] = None,
    query: Annotated[
        str | None,
        typer.Option(
            "--query", "-q", help="Measure this query; {input} stands for the input: 'SEARCH {input} LIMIT 5'."
        ),
    ] = None,
    evaluator: EvaluatorOption = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="The model of the agent.")] = None,
    judge_model: JudgeModelOption = None,
    name: Annotated[str | None, typer.Option(help="The name of the experiment.  [default: that of the file]")] = None,
    baseline: BaselineOption = None,
    tolerance: ToleranceOption = 0.01,
    min_pass_rate: MinPassRateOption = None,
    concurrency: ConcurrencyOption = 4,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="The seed for the models.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N cases.")] = None,
    output: OutputOption = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Run an agent or a query on a golden set, and judge it.

    Ctrl-C finishes the cases in flight; `rem eval resume` continues. Nothing that is run becomes a memory.
    """
    from rem.errors import InvalidInputError
    from rem.evals.evaluators import load_evaluators
    from rem.evals.golden_sets import GoldenSet, read_golden_set

    if (agent is None) == (query is None):
        raise InvalidInputError("Name what to measure: either --agent or --query.")
    golden_set = read_golden_set(golden)
    if limit is not None:
        golden_set = GoldenSet(golden_set.name, golden_set.cases[:limit])
    gates = Gates(baseline, tolerance, min_pass_rate)

    async def work(bench: Workbench) -> RunOutcome:
        bench = bench.with_judge(judge_model, seed)
        await gates.check(bench)
        description = {"kind": "query", "query": query} if agent is None else _describe_agent(agent, model)
        target = bench.make_target(description)
        evaluators = await load_evaluators(evaluator or [], bench.agents, bench.context)
        started = await bench.experiments.start(golden_set, target, evaluators, name=name, judge=bench.judge, seed=seed)
        return await bench.complete(started, target, concurrency, output, gates)

    print_outcome(with_workbench(work, user, tenant), gates, user, tenant, as_json=as_json)


@app.command()
def resume(
    label: RunArgument,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Also run the cases and evaluators again that failed.")
    ] = False,
    judge_model: JudgeModelOption = None,
    baseline: BaselineOption = None,
    tolerance: ToleranceOption = 0.01,
    min_pass_rate: MinPassRateOption = None,
    concurrency: ConcurrencyOption = 4,
    output: OutputOption = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Continue a run that was interrupted. Cases that have an output do not run again."""
    gates = Gates(baseline, tolerance, min_pass_rate)

    async def work(bench: Workbench) -> RunOutcome:
        stored = await bench.experiments.store.get(label)
        bench = bench.with_judge(judge_model, stored.seed)
        await gates.check(bench)
        if retry_failed:
            await bench.experiments.store.clear_errors(stored)
        return await bench.complete(stored, bench.make_target(stored.target), concurrency, output, gates)

    print_outcome(with_workbench(work, user, tenant), gates, user, tenant, as_json=as_json)


@app.command()
def judge(
    label: RunArgument,
    evaluator: EvaluatorOption = None,
    judge_model: JudgeModelOption = None,
    baseline: BaselineOption = None,
    tolerance: ToleranceOption = 0.01,
    min_pass_rate: MinPassRateOption = None,
    concurrency: ConcurrencyOption = 4,
    output: OutputOption = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Judge the stored outputs of a run again.

    With more evaluators, or with the same ones. No agent runs.
    """
    from rem.evals.evaluators import load_evaluators
    from rem.evals.experiments import load_run_evaluators

    gates = Gates(baseline, tolerance, min_pass_rate)

    async def work(bench: Workbench) -> RunOutcome:
        stored = await bench.experiments.store.get(label)
        bench = bench.with_judge(judge_model, stored.seed)
        await gates.check(bench)
        named = await load_evaluators(evaluator, bench.agents, bench.context) if evaluator else None
        evaluators = load_run_evaluators(stored) if named is None else named
        stored = await bench.experiments.add_evaluators(stored, evaluators, bench.judge)
        return await bench.complete(stored, None, concurrency, output, gates)

    print_outcome(with_workbench(work, user, tenant), gates, user, tenant, as_json=as_json)


@app.command("list")
def list_runs(
    name: Annotated[str | None, typer.Argument(help="Only the runs of this name.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The maximum number of runs.")] = 20,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """List the runs of experiments, latest first."""
    from rem.cli.output import print_json, print_table, shorten

    async def work(bench: Workbench) -> list[tuple[ExperimentRun, dict[str, int]]]:
        return await bench.experiments.store.list_runs(name, limit)

    rows = with_workbench(work, user, tenant)
    if as_json:
        print_json([_run_to_json(stored, counts) for stored, counts in rows])
    elif not rows:
        print_to_stderr("There are no runs: `rem eval run` makes one.")
    else:
        cells = [
            [
                stored.label,
                f"{stored.created_at:%m-%d %H:%M}",
                counts["cases"],
                counts["errors"],
                "complete" if stored.ended_at else f"{counts['outputs']} run",
                shorten(stored.target_name, 30),
            ]
            for stored, counts in rows
        ]
        print_table(["run", "started", "cases", "errors", "state", "of"], cells)


@app.command()
def show(
    label: RunArgument,
    case: Annotated[str | None, typer.Argument(help="The id of a case, to show all of it.")] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show the scores and failed cases of a run, or one case."""
    from rem.cli.output import print_json
    from rem.evals.experiment_report import summarize_run

    async def work(bench: Workbench) -> tuple[ExperimentRun, list[StoredCase]]:
        return await bench.load(label)

    stored, cases = with_workbench(work, user, tenant)
    if case is not None:
        print_case(stored, cases, case, as_json=as_json)
        return
    summary = summarize_run(stored, cases)
    if as_json:
        print_json(summary.as_json())
        return
    print_summary(summary, None)
    print_failures(cases)


@app.command("compare")
def compare_runs(
    baseline: Annotated[str, typer.Argument(metavar="BASELINE", help="The run to compare with.")],
    label: RunArgument,
    tolerance: ToleranceOption = 0.01,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Compare a run with a baseline. If it is worse, the exit code is 7."""
    from rem.cli.output import print_json
    from rem.evals.experiment_report import compare, summarize_run

    async def work(bench: Workbench) -> tuple[RunComparison, RunSummary]:
        before, after = await bench.load(baseline), await bench.load(label)
        return compare(before, after, tolerance=tolerance), summarize_run(*after)

    comparison, summary = with_workbench(work, user, tenant)
    if as_json:
        print_json(comparison.as_json())
    else:
        print_summary(summary, comparison)
    require_no_regression(comparison)


@app.command()
def delete(
    label: RunArgument,
    yes: YesOption = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Delete a run with its outputs and scores from the database. Its files stay."""

    async def find(bench: Workbench) -> ExperimentRun:
        return await bench.experiments.store.get(label)

    stored = with_workbench(find, user, tenant)
    if not yes:
        confirm(f"Delete {stored.label} of {stored.created_at:%Y-%m-%d %H:%M}?")

    async def remove(bench: Workbench) -> None:
        await bench.experiments.store.delete(stored)

    with_workbench(remove, user, tenant)
    echo(f"Deleted {stored.label}.")


@app.command()
def evaluators(user: UserOption = None, tenant: TenantOption = "default", as_json: JsonOption = False) -> None:
    """List the evaluators, and invalid definitions with the reason.

    `rem agents show`, `validate`, `save` and `delete` also work with evaluators.
    """
    from rem.cli.agents import print_catalog
    from rem.context import Scope

    print_catalog("evaluator", Scope.for_user(user, tenant), as_json=as_json)


def _describe_agent(agent: str, model: str | None) -> dict[str, Any]:
    return {"kind": "agent", "agent": agent, "model": model}


def _run_to_json(stored: ExperimentRun, counts: dict[str, int]) -> dict[str, Any]:
    return {
        "run": stored.label,
        "id": str(stored.id),
        "golden_set": stored.golden_set,
        "target": stored.target,
        "versions": stored.versions,
        "created_at": stored.created_at.isoformat(),
        "complete": stored.ended_at is not None,
        **counts,
    }
