"""`rem jobs`: list, show, retry, cancel and count background jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from rem.cli.output import shorten
from rem.cli.runtime import JsonOption, run_with_rem
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rem.app import Rem
    from rem.jobs.queue import Job, JobCounts, ScheduleStatus

MAX_ERROR_CHARS = 60
StateName: TypeAlias = Literal["queued", "running", "dead"]
IdsArgument = Annotated[list[int], typer.Argument(help="The ids of the jobs, from `rem jobs list`.")]

app = typer.Typer(help="List, retry and cancel background jobs.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_jobs(
    state: Annotated[StateName | None, typer.Option(help="Only jobs in this state.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only jobs of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The maximum number of jobs.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List the jobs that are not done, newest first."""
    from rem.cli.output import print_json, print_table
    from rem.jobs.queue import JobQueue

    async def work(rem: Rem) -> Sequence[Job]:
        return await JobQueue(rem.database).list(state=state, kind=kind, limit=limit)

    jobs = run_with_rem(work)
    if as_json:
        print_json(jobs)
    elif jobs:
        columns = ["id", "kind", "state", "attempts", "created", "error"]
        print_table(columns, [_to_row(job) for job in jobs])
    else:
        echo("There are no such jobs." if state or kind else "There are no queued, running or dead jobs.")


@app.command()
def show(
    job_id: Annotated[int, typer.Argument(help="The id of the job.")],
    as_json: JsonOption = False,
) -> None:
    """Show a job that is not done, with the error of its last attempt."""
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
    ids: Annotated[list[int] | None, typer.Argument(help="The ids of dead jobs.")] = None,
    all_dead: Annotated[bool, typer.Option("--all", help="All dead jobs.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Retry dead jobs, with the full number of attempts."""
    from rem.cli.output import format_count, print_json
    from rem.errors import InvalidInputError
    from rem.jobs.queue import JobQueue

    if bool(ids) == all_dead:
        raise InvalidInputError("Give the ids of the jobs, or --all.")

    async def work(rem: Rem) -> Sequence[int]:
        return await JobQueue(rem.database).retry(None if all_dead else ids)

    retried = run_with_rem(work)
    if as_json:
        print_json({"retried": retried})
    else:
        echo(f"{format_count(len(retried), 'job')} will be retried.")
    _require_all(ids or [], retried, "is dead")


@app.command()
def cancel(ids: IdsArgument, as_json: JsonOption = False) -> None:
    """Cancel jobs: remove queued ones and stop running ones."""
    from rem.cli.output import format_count, print_json
    from rem.jobs.queue import JobQueue

    async def work(rem: Rem) -> Sequence[int]:
        return await JobQueue(rem.database).cancel(ids)

    canceled = run_with_rem(work)
    if as_json:
        print_json({"canceled": canceled})
    else:
        echo(f"{format_count(len(canceled), 'job')} cancelled.")
    _require_all(ids, canceled, "is queued, running or dead")


@app.command()
def stats(as_json: JsonOption = False) -> None:
    """Count the jobs by kind and state, and show the schedules."""
    from rem.cli.output import print_json, print_table
    from rem.jobs.queue import JobQueue

    async def work(rem: Rem) -> tuple[Sequence[JobCounts], Sequence[ScheduleStatus]]:
        jobs = JobQueue(rem.database)
        return await jobs.stats(), await jobs.schedules()

    counts, schedules = run_with_rem(work)
    if as_json:
        print_json({"kinds": counts, "schedules": schedules})
        return
    if counts:
        columns = ["kind", "queued", "running", "dead", "done (24 h)", "failed (24 h)"]
        rows = [
            [count.kind, count.queued, count.running, count.dead, count.done_lately, count.failed_lately]
            for count in counts
        ]
        print_table(columns, rows)
    else:
        echo("There are no jobs, and there were none in the last 24 hours.")
    if schedules:
        print_table(
            ["scheduled", "schedule", "next", "last"],
            [
                [
                    schedule.kind,
                    schedule.schedule,
                    _format_time(schedule.next_at),
                    _format_time(schedule.last_at) if schedule.last_at else None,
                ]
                for schedule in schedules
            ],
        )


def _to_row(job: Job) -> list[object]:
    error = shorten(job.error.message.splitlines()[0], MAX_ERROR_CHARS) if job.error and job.error.message else None
    return [job.id, job.kind, job.state, job.attempts, _format_time(job.created_at), error]


def _print_job(job: Job) -> None:
    import orjson

    echo(f"Job {job.id}, {job.kind}, {job.state}")
    echo(f"  owner     {job.user_id or '-'} in {job.tenant_id or '-'}")
    echo(f"  created   {job.created_at:%Y-%m-%d %H:%M:%S} UTC, due {job.due_at:%Y-%m-%d %H:%M:%S} UTC")
    echo(f"  attempts  {job.attempts}")
    echo(f"  payload   {orjson.dumps(job.payload).decode()}")
    if job.error is not None:
        echo(f"  error     {job.error.message}")
        for location in job.error.where:
            echo(f"            at {location}")
    if job.state == "dead":
        echo(f"Retry it with `rem jobs retry {job.id}`, or cancel it with `rem jobs cancel {job.id}`.")


def _format_time(moment: object) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _require_all(requested: Sequence[int], processed: Sequence[int], condition: str) -> None:
    """Raise NotFoundError if a requested id is not among the processed ones. The others stay processed."""
    from rem.errors import NotFoundError

    missing = sorted(set(requested) - set(processed))
    if missing:
        raise NotFoundError(f"No job with the id {', '.join(map(str, missing))} {condition}: see `rem jobs list`.")
