"""`rem jobs …`: what waits, what runs, and what was set aside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from rem.cli.output import shorten
from rem.cli.runtime import JsonOption, run_with_rem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rem.app import Rem
    from rem.jobs.job import Job, JobCounts, ScheduleStatus

_LONGEST_ERROR = 60
StateName: TypeAlias = Literal["queued", "running", "dead"]
Ids = Annotated[list[int], typer.Argument(help="The jobs' numbers, as in `rem jobs list`.")]

app = typer.Typer(
    help="Background jobs: what waits, what runs, and what was set aside.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list")
def list_jobs(
    state: Annotated[StateName | None, typer.Option(help="Only jobs in this state.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only jobs of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The most to list.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List the jobs that are not done, the newest first."""
    from rem.cli.output import print_json, print_table
    from rem.jobs.queue import JobQueue

    async def work(rem: Rem) -> Sequence[Job]:
        return await JobQueue(rem.database).list(state=state, kind=kind, limit=limit)

    jobs = run_with_rem(work)
    if as_json:
        print_json(jobs)
    elif jobs:
        columns = ["id", "kind", "state", "attempts", "created", "error"]
        print_table(columns, [_row(job) for job in jobs])
    else:
        typer.echo("There are no such jobs." if state or kind else "No job waits, and none was set aside.")


@app.command()
def show(
    job_id: Annotated[int, typer.Argument(help="The job's number.")],
    as_json: JsonOption = False,
) -> None:
    """Show one job that is not done: what it is to do, and what its last attempt met."""
    from rem.cli.output import print_json
    from rem.jobs.queue import JobQueue

    async def work(rem: Rem) -> Job:
        return await JobQueue(rem.database).get(job_id)

    job = run_with_rem(work)
    if as_json:
        print_json(job)
    else:
        _print_job(job)


@app.command()
def retry(
    ids: Annotated[list[int] | None, typer.Argument(help="The numbers of dead jobs.")] = None,
    all_dead: Annotated[bool, typer.Option("--all", help="All dead jobs.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Let dead jobs wait again, with all their attempts."""
    from rem.cli.output import format_count, print_json
    from rem.errors import InvalidInputError
    from rem.jobs.queue import JobQueue

    if bool(ids) == all_dead:
        raise InvalidInputError("Say which jobs, by their numbers, or --all.")

    async def work(rem: Rem) -> Sequence[int]:
        return await JobQueue(rem.database).retry(None if all_dead else ids)

    revived = run_with_rem(work)
    if as_json:
        print_json({"retried": revived})
    else:
        typer.echo(f"{format_count(len(revived), 'job')} will be tried again.")
    _missing(ids or [], revived, "is dead")


@app.command()
def cancel(ids: Ids, as_json: JsonOption = False) -> None:
    """Take jobs out of the queue, and stop those that run."""
    from rem.cli.output import format_count, print_json
    from rem.jobs.queue import JobQueue

    async def work(rem: Rem) -> Sequence[int]:
        return await JobQueue(rem.database).cancel(ids)

    canceled = run_with_rem(work)
    if as_json:
        print_json({"canceled": canceled})
    else:
        typer.echo(f"{format_count(len(canceled), 'job')} cancelled.")
    _missing(ids, canceled, "waits, runs or is dead")


@app.command()
def stats(as_json: JsonOption = False) -> None:
    """Count the jobs by kind and state, those that ended in the last day, and when what is regular is due."""
    from rem.cli.output import print_json, print_table
    from rem.jobs.queue import JobQueue

    async def work(rem: Rem) -> tuple[Sequence[JobCounts], Sequence[ScheduleStatus]]:
        jobs = JobQueue(rem.database)
        return await jobs.stats(), await jobs.schedules()

    kinds, planned = run_with_rem(work)
    if as_json:
        print_json({"kinds": kinds, "schedules": planned})
        return
    if kinds:
        columns = ["kind", "queued", "running", "dead", "done (24 h)", "failed (24 h)"]
        rows = [[k.kind, k.queued, k.running, k.dead, k.done_lately, k.failed_lately] for k in kinds]
        print_table(columns, rows)
    else:
        typer.echo("There are no jobs, and there were none in the last day.")
    if planned:
        print_table(
            ["regularly", "schedule", "next", "last"],
            [[p.kind, p.schedule, _time(p.next_at), _time(p.last_at) if p.last_at else None] for p in planned],
        )


def _row(job: Job) -> list[object]:
    error = shorten(job.error.message.splitlines()[0], _LONGEST_ERROR) if job.error and job.error.message else None
    return [job.id, job.kind, job.state, job.attempts, _time(job.created_at), error]


def _print_job(job: Job) -> None:
    import orjson

    typer.echo(f"Job {job.id}, {job.kind}, {job.state}")
    typer.echo(f"  owner     {job.user_id or '-'} in {job.tenant_id or '-'}")
    typer.echo(f"  created   {job.created_at:%Y-%m-%d %H:%M:%S} UTC, due {job.due_at:%Y-%m-%d %H:%M:%S} UTC")
    typer.echo(f"  attempts  {job.attempts}")
    typer.echo(f"  payload   {orjson.dumps(job.payload).decode()}")
    if job.error is not None:
        typer.echo(f"  error     {job.error.message}")
        for place in job.error.where:
            typer.echo(f"            at {place}")
    if job.state == "dead":
        typer.echo(f"Try it again with `rem jobs retry {job.id}`, or drop it with `rem jobs cancel {job.id}`.")


def _time(moment: object) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _missing(asked: Sequence[int], found: Sequence[int], what: str) -> None:
    """Numbers of no such job are an error, after what could be done was done."""
    from rem.errors import NotFoundError

    missing = sorted(set(asked) - set(found))
    if missing:
        raise NotFoundError(f"No job with the number {', '.join(map(str, missing))} {what}: see `rem jobs list`.")
