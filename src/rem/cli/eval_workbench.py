"""The workbench of the `rem eval` commands: an open REM with its agents, and the experiments of the user."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from rem.cli.runtime import load_settings, print_to_stderr, run_async

if TYPE_CHECKING:
    from rem.agents.service import Agents
    from rem.app import Rem
    from rem.context import AgentContext
    from rem.evals.evaluators import Judge
    from rem.evals.experiment_report import RunComparison, RunSummary
    from rem.evals.experiment_store import ExperimentRun, StoredCase
    from rem.evals.experiments import Experiments, RunOptions
    from rem.evals.targets import Target

R = TypeVar("R")
PREVIOUS = "previous"
"""Names the previous run of the same name as baseline."""


@dataclass(frozen=True, slots=True)
class Gates:
    """The conditions on a run, besides that its cases do not fail."""

    baseline: str | None
    tolerance: float
    min_pass_rate: float | None

    async def check(self, bench: Workbench) -> None:
        """Raise NotFoundError now, and not after the run, if there is no such baseline."""
        if self.baseline not in (None, PREVIOUS):
            await bench.experiments.store.get(str(self.baseline))


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A run after its cases were worked off, as far as it got."""

    summary: RunSummary
    comparison: RunComparison | None
    folder: Path
    is_interrupted: bool


@dataclass(frozen=True, slots=True)
class Workbench:
    """The objects that the commands use: an open REM, its agents, and the experiments of the user."""

    rem: Rem
    agents: Agents
    context: AgentContext
    experiments: Experiments
    judge: Judge | None = None

    def with_judge(self, model: str | None, seed: int) -> Workbench:
        """Return the workbench with a model for the evaluators that need one."""
        from rem.evals.evaluators import Judge

        return replace(self, judge=Judge(self.agents, self.context, model, seed))

    def make_target(self, description: dict[str, Any]) -> Target:
        """Return the agent or the query that a run measures."""
        from rem.evals.targets import make_target

        assert self.judge is not None  # noqa: S101  # with_judge came first
        return make_target(description, self.rem, self.agents, self.context, seed=self.judge.seed)

    async def load(self, label: str) -> tuple[ExperimentRun, list[StoredCase]]:
        """Return a run with its cases."""
        stored = await self.experiments.store.get(label)
        return stored, await self.experiments.store.load_cases(stored)

    async def load_baseline(
        self, stored: ExperimentRun, baseline: str | None
    ) -> tuple[ExperimentRun, list[StoredCase]] | None:
        """Return the run to compare with; None if there is none."""
        store = self.experiments.store
        if baseline is None:
            return None
        before = await store.get_previous(stored) if baseline == PREVIOUS else await store.get(baseline)
        return None if before is None else (before, await store.load_cases(before))

    async def complete(
        self, stored: ExperimentRun, target: Target | None, concurrency: int, output: Path | None, gates: Gates
    ) -> RunOutcome:
        """Work off the cases of a run, and write its files."""
        from rem.cli.output import check_folder, explain_write_errors, progress_bars, without_echo
        from rem.evals.experiment_report import compare, summarize_run, write_results
        from rem.evals.experiments import RunOptions

        folder = (
            output or load_settings().rem_home / "experiments" / f"{stored.name}-{stored.number}-{stored.id.hex[:8]}"
        )
        # Before the cases: their outputs may have cost money.
        check_folder(folder)
        with without_echo(), progress_bars("Running", "Judging", line_seconds=30) as (on_output, on_scores):
            options = RunOptions(concurrency, on_output=on_output, on_scores=on_scores)
            with _stop_on_interrupt(options, stored.label):
                stored = await self.experiments.complete(stored, target, self.judge, options)
        cases = await self.experiments.store.load_cases(stored)
        with explain_write_errors(folder):
            write_results(folder, stored, cases)
        before = await self.load_baseline(stored, gates.baseline)
        comparison = None if before is None else compare(before, (stored, cases), tolerance=gates.tolerance)
        return RunOutcome(summarize_run(stored, cases), comparison, folder, options.stop.is_set())


def with_workbench(work: Callable[[Workbench], Awaitable[R]], user: str | None, tenant: str) -> R:
    """Open the workbench of a user, and run the coroutine of a command with it."""

    async def main() -> R:
        async with _open_workbench(user, tenant) as bench:
            return await work(bench)

    return run_async(main)


@asynccontextmanager
async def _open_workbench(user: str | None, tenant: str) -> AsyncIterator[Workbench]:
    from rem.app import Rem
    from rem.context import AgentContext, Scope
    from rem.evals.experiments import Experiments

    settings = load_settings()
    scope = Scope.for_user(user, tenant)
    context = AgentContext(user_id=scope.user_id, tenant_id=tenant, is_eval=True, client_id="eval")
    async with Rem.open(settings, on_progress=print_to_stderr) as rem:
        yield Workbench(rem, rem.agents, context, Experiments(rem, scope))


@contextmanager
def _stop_on_interrupt(options: RunOptions, label: str) -> Iterator[None]:
    """Let the first Ctrl-C finish the cases in flight, and the second one stop at once."""
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread receives signals.
        yield
        return
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def on_signal() -> None:
        if options.stop.is_set():
            if task is not None:
                task.cancel()
            return
        options.stop.set()
        # Not with click, whose output the bars would overwrite.
        print("Finishing the cases in flight. Press Ctrl-C again to stop at once.", file=sys.stderr)  # noqa: T201

    loop.add_signal_handler(signal.SIGINT, on_signal)
    try:
        yield
    except asyncio.CancelledError:
        print_to_stderr(f"Stopped. `rem eval resume {label}` continues.")
        raise typer.Exit(130) from None
    finally:
        loop.remove_signal_handler(signal.SIGINT)
