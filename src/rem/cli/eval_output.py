"""Print runs of experiments: their scores, their comparison with a baseline, and the cases that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rem.cli.runtime import print_to_stderr
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.cli.eval_workbench import Gates, RunOutcome
    from rem.evals.experiment_report import RunComparison, RunSummary
    from rem.evals.experiment_store import ExperimentRun, StoredCase

MAX_LISTED_FAILURES = 20
MAX_CELL_CHARS = 60


def print_outcome(outcome: RunOutcome, gates: Gates, user: str | None, tenant: str, *, as_json: bool) -> None:
    """Print a run. Raise RegressionError or FailedCasesError if it is red, and exit with 130 if it is not complete."""
    from rem.cli.output import format_command, print_json

    summary, comparison = outcome.summary, outcome.comparison
    if as_json:
        compared = None if comparison is None else comparison.as_json()
        print_json({**summary.as_json(), "comparison": compared, "folder": str(outcome.folder)})
    else:
        print_summary(summary, comparison)
        echo(f"Files: {outcome.folder}")
    if outcome.is_interrupted and not summary.is_complete:
        command = format_command("eval", "resume", summary.run.label, user=user, tenant=tenant)
        print_to_stderr(f"Interrupted. Continue with: {command}")
        raise typer.Exit(130)
    if gates.baseline is not None and comparison is None:
        print_to_stderr("There is no previous run to compare with.")
    if comparison is not None:
        require_no_regression(comparison)
    _require_passed(summary, gates.min_pass_rate)


def require_no_regression(comparison: RunComparison) -> None:
    """Raise RegressionError if a run is worse than its baseline, InvalidInputError if they cannot be compared."""
    from rem.errors import InvalidInputError, RegressionError

    if not comparison.common_cases:
        raise InvalidInputError(
            f"{comparison.run.label} and {comparison.baseline.label} have no case in common, so nothing was compared: "
            "choose another baseline."
        )
    if comparison.regressions:
        changes = [f"{item.label} {item.before:.3f} → {item.after:.3f}" for item in comparison.regressions]
        raise RegressionError(
            f"{comparison.run.label} is worse than {comparison.baseline.label}: {', '.join(changes)}."
        )


def _require_passed(summary: RunSummary, min_pass_rate: float | None) -> None:
    from rem.cli.output import format_count
    from rem.errors import FailedCasesError

    show = f"`rem eval show {summary.run.label}` names them."
    if summary.errors or summary.evaluator_errors:
        raise FailedCasesError(
            f"{format_count(summary.errors, 'case')} and {format_count(summary.evaluator_errors, 'judgement')} ended "
            f"with an error: {show}"
        )
    if min_pass_rate is not None and (summary.pass_rate or 0.0) < min_pass_rate:
        raise FailedCasesError(
            f"{summary.passed} of {summary.judged} judged cases passed, and {min_pass_rate:.0%} must: {show}"
        )


def print_summary(summary: RunSummary, comparison: RunComparison | None) -> None:
    """Print the scores of a run; with a comparison, how they changed."""
    from rem.cli.output import format_count, print_table, print_wrapped

    stored = summary.run
    state = "" if summary.is_complete else f", {summary.outputs} run"
    echo(f"{stored.label}: {stored.target['kind']} {stored.target_name}, {format_count(summary.cases, 'case')}{state}")
    if summary.pass_rate is not None:
        echo(f"passed {summary.passed} of {summary.judged} ({summary.pass_rate:.1%})")
    failed = summary.errors + summary.evaluator_errors
    if failed:
        kind = stored.target["kind"]
        echo(f"errors {failed}: {summary.errors} of the {kind}, {summary.evaluator_errors} of evaluators")
    changes = {} if comparison is None else {change.label: change for change in comparison.changes}
    rows = []
    for figures in summary.scores:
        row = [figures.label, f"{figures.mean:.3f}", f"{figures.minimum:.3f}", f"{figures.maximum:.3f}"]
        change = changes.get(figures.label)
        if comparison is not None:
            mark = " worse" if change is not None and change.is_regression else ""
            row.append("" if change is None else f"{change.difference:+.3f}{mark}")
        rows.append(row)
    if rows:
        print_table(["score", "mean", "least", "most", *(["change"] if comparison is not None else [])], rows)
    if comparison is not None:
        echo(f"against {comparison.baseline.label}, over {comparison.common_cases} common cases")
        for label, ids in (("newly failed", comparison.newly_failed), ("newly passed", comparison.newly_passed)):
            if ids:
                print_wrapped(f"{label}: {', '.join(ids[:MAX_LISTED_FAILURES])}")


def print_failures(cases: list[StoredCase]) -> None:
    """Print the cases that failed, with a reason."""
    from rem.agents.evaluation import PASS
    from rem.cli.output import print_wrapped, shorten
    from rem.evals.experiment_report import passes

    failed = [case for case in cases if passes(case) is False]
    for case in failed[:MAX_LISTED_FAILURES]:
        failures = [item for item in case.judgements.values() if item.error or item.scores.get(PASS) is False]
        reasons = [case.error, *(item.error or item.explanation for item in failures)]
        reason = next((text for text in reasons if text), "did not pass")
        beginning = shorten(" ".join(case.case.text.split()), MAX_CELL_CHARS)
        print_wrapped(f"failed {case.case.id}: {beginning}: {reason}", indent="    ")
    if len(failed) > MAX_LISTED_FAILURES:
        echo(f"and {len(failed) - MAX_LISTED_FAILURES} more")


def print_case(stored: ExperimentRun, cases: list[StoredCase], case_id: str, *, as_json: bool) -> None:
    """Print all of one case. Raise NotFoundError if the run does not have it."""
    from rem.agents.schema import dump_yaml
    from rem.cli.output import print_json
    from rem.errors import NotFoundError
    from rem.evals.experiment_report import case_to_json
    from rem.text import did_you_mean

    case = next((item for item in cases if item.case.id == case_id), None)
    if case is None:
        ids = [item.case.id for item in cases]
        raise NotFoundError(f"{stored.label} has no case {case_id!r}.{did_you_mean(case_id, ids)}")
    values = case_to_json(case)
    if as_json:
        print_json(values)
        return
    echo(dump_yaml(values), nl=False)
