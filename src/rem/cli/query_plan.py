"""`rem query --plan`: what became of each stage, and the rows of the one that answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rem.cli.entity_text import escape_control_characters
from rem.cli.output import format_count, print_json
from rem.cli.runtime import print_to_stderr, run_with_rem
from rem.errors import InvalidInputError

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.query.plans.plan import PlanResult, StageResult


def query_plan(path: Path, query: str, *, user: str | None, tenant: str, as_json: bool, explain: bool) -> None:
    """Run a plan and print its answer; exit code 1 if a stage failed."""
    from rem.query.plans.plan import Plan, check_plan

    if query:
        raise InvalidInputError("Give a query or --plan, not both.")
    plan = Plan.parse(_read(path))
    # A mistake in the plan is told before a server is started for it.
    check_plan(plan)

    async def work(rem: Rem) -> PlanResult:
        return await rem.run_plan(plan, user=user, tenant=tenant)

    result = run_with_rem(work)
    if as_json:
        print_json(result.as_json(explain=explain))
    else:
        _print(result)
    if any(stage.status == "failed" for stage in result.stages):
        raise typer.Exit(1)


def _read(path: Path) -> str:
    if str(path) == "-":
        return sys.stdin.read()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"The plan {path} cannot be read: {error}.") from error


def _print(result: PlanResult) -> None:
    from rem.cli.query_table import print_rows

    for stage in result.stages:
        print_to_stderr(escape_control_characters(f"{stage.id}: {_said(stage)}: {stage.query}"))
        for note in stage.result.notes:
            print_to_stderr(escape_control_characters(f"  Note: {note}"))
    if result.results:
        print_rows(result[result.answer].result)
    else:
        print_to_stderr("No rows.")


def _said(stage: StageResult) -> str:
    if stage.status == "done":
        return format_count(stage.result.count, "row")
    return stage.status if stage.error is None else f"{stage.status} ({stage.error})"
