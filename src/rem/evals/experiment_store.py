"""ExperimentStore: the stored runs of one owner, with their cases, outputs and scores."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from rem.agents.expressions import Score
from rem.context import parse_uuid
from rem.db.sql import query
from rem.errors import ConflictError, InvalidInputError, NotFoundError
from rem.evals.evaluators import CaseOutput, Judgement
from rem.evals.golden_sets import GoldenCase
from rem.models.field_types import to_json_value
from rem.text import clean_text

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Database

_NAME = re.compile(r"\w[\w .+-]{0,99}")
MAX_TEXT_CHARS = 1_000_000
"""Length of a text in an output that is stored."""
MAX_ERROR_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class ExperimentRun:
    """One run of an experiment."""

    id: UUID
    name: str
    number: int
    golden_set: str
    target: dict[str, Any]
    evaluators: list[dict[str, Any]]
    """The documents of the evaluators."""
    versions: dict[str, Any]
    seed: int
    created_at: datetime
    ended_at: datetime | None

    @property
    def label(self) -> str:
        """The name with the number: `golden#3`."""
        return f"{self.name}#{self.number}"

    @property
    def target_name(self) -> str:
        """The agent, the query or the function."""
        return str(self.target[self.target["kind"]])


@dataclass(slots=True)
class StoredCase:
    """A case of a run. Before it has run, `ended_at` is None."""

    position: int
    case: GoldenCase
    output: CaseOutput
    error: str | None
    ended_at: datetime | None
    judgements: dict[str, StoredJudgement] = field(default_factory=dict)
    """By the name of the evaluator."""


@dataclass(frozen=True, slots=True)
class StoredJudgement:
    """The scores of a case by one evaluator, or its error."""

    scores: dict[str, Score]
    explanation: str | None
    error: str | None
    seconds: float


class ExperimentStore:
    """Reads and writes the runs of one owner. Runs of other owners do not exist for it."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._owner = (scope.tenant_id, scope.user_id)

    async def create(
        self,
        name: str,
        golden_set: str,
        cases: Sequence[GoldenCase],
        *,
        target: Mapping[str, Any],
        evaluators: Sequence[Mapping[str, Any]],
        versions: Mapping[str, Any],
        seed: int,
    ) -> ExperimentRun:
        """Store a new run with its cases, before any of them runs."""
        _check_name(name)
        privacy = self._database.privacy.masking
        golden = [orjson.dumps(privacy.mask_value(case.as_json())).decode() for case in cases]
        async with self._database.transaction() as inside, inside.connection() as connection:
            await connection.execute(query("evals/experiments", "lock_numbers"), *self._owner)
            row = await connection.fetchrow(
                query("evals/experiments", "insert_run"),
                *self._owner,
                name,
                golden_set,
                target,
                list(evaluators),
                versions,
                seed,
            )
            assert row is not None  # noqa: S101  # RETURNING
            ids = [case.id for case in cases]
            await connection.execute(query("evals/experiments", "insert_cases"), *self._owner, row["id"], ids, golden)
        return _to_run(row)

    async def list_runs(self, name: str | None = None, limit: int = 50) -> list[tuple[ExperimentRun, dict[str, int]]]:
        """Return the runs, latest first, each with its number of cases, outputs and errors."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("evals/experiments", "list_runs"), *self._owner, name, limit)
        return [(_to_run(row), {count: row[count] for count in ("cases", "outputs", "errors")}) for row in rows]

    async def get(self, label: str) -> ExperimentRun:
        """Return a run by its id, by `name#number`, or the latest run of a name. Raise NotFoundError."""
        name, _, number = label.rpartition("#") if "#" in label else (label, "", "")
        if number and not (number.isdecimal() and len(number) < 9):
            raise InvalidInputError(f"{label!r} is not a run: write its name, name#number or its id.")
        async with self._database.connection() as connection:
            row = await connection.fetchrow(
                query("evals/experiments", "find_run"),
                *self._owner,
                parse_uuid(label),
                clean_text(name),
                int(number or 0) or None,
            )
        if row is None:
            raise NotFoundError(f"There is no run {label!r}: `rem eval list` shows all.")
        return _to_run(row)

    async def get_previous(self, run: ExperimentRun) -> ExperimentRun | None:
        """Return the latest complete run of the same name before this one; None if there is none."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(
                query("evals/experiments", "find_previous"), *self._owner, run.name, run.number
            )
        return None if row is None else _to_run(row)

    async def load_cases(self, run: ExperimentRun) -> list[StoredCase]:
        """Return the cases of a run in their order, with outputs and scores."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("evals/experiments", "list_cases"), *self._owner, run.id)
            scores = await connection.fetch(query("evals/experiments", "list_scores"), *self._owner, run.id)
        cases = {row["position"]: _to_case(row) for row in rows}
        for row in scores:
            judgement = StoredJudgement(row["scores"], row["explanation"], row["error"], row["seconds"])
            cases[row["position"]].judgements[row["evaluator"]] = judgement
        return list(cases.values())

    @asynccontextmanager
    async def lock(self, run: ExperimentRun) -> AsyncIterator[None]:
        """Hold the lock of a run. PostgreSQL releases it even if the process is killed. Raise ConflictError."""
        async with self._database.unpooled_connection() as connection:
            if not await connection.fetchval(query("evals/experiments", "try_lock_run"), run.id):
                raise ConflictError(f"{run.label} is running in another process: wait until it has ended.")
            yield

    async def save_output(self, run: ExperimentRun, position: int, output: CaseOutput, error: str | None) -> None:
        """Store the output of a case, or its error."""
        privacy = self._database.privacy.masking
        value, details = (privacy.mask_value(_to_storable(part)) for part in (output.value, output.details))
        message = None if error is None else privacy.mask(clean_text(error))[:MAX_ERROR_CHARS]
        async with self._database.connection() as connection:
            await connection.execute(
                query("evals/experiments", "save_output"),
                *(*self._owner, run.id, position, value, details, message, output.seconds),
            )

    async def save_judgement(
        self, run: ExperimentRun, position: int, evaluator: str, judgement: Judgement, error: str | None, seconds: float
    ) -> None:
        """Store the scores of a case by one evaluator, or the evaluator's error."""
        privacy = self._database.privacy.masking
        texts = [judgement.explanation, error]
        explanation, message = (None if text is None else privacy.mask(clean_text(text)) for text in texts)
        async with self._database.connection() as connection:
            await connection.execute(
                query("evals/experiments", "save_scores"),
                *(*self._owner, run.id, position, evaluator, judgement.scores),
                *(explanation, message and message[:MAX_ERROR_CHARS], seconds),
            )

    async def clear_errors(self, run: ExperimentRun) -> None:
        """Let failed cases and failed evaluators run again."""
        async with self._database.connection() as connection:
            await connection.execute(query("evals/experiments", "clear_errors"), *self._owner, run.id)

    async def set_evaluators(
        self,
        run: ExperimentRun,
        evaluators: Sequence[Mapping[str, Any]],
        versions: Mapping[str, Any],
        outdated: Sequence[str],
    ) -> ExperimentRun:
        """Replace the evaluators of a run, and delete the scores of the `outdated` ones."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(
                query("evals/experiments", "set_evaluators"),
                *self._owner,
                run.id,
                list(evaluators),
                versions,
                list(outdated),
            )
        return _require_run(row, run)

    async def end(self, run: ExperimentRun, *, is_complete: bool) -> ExperimentRun:
        """Mark a run as complete, or as not complete."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("evals/experiments", "end_run"), *self._owner, run.id, is_complete)
        return _require_run(row, run)

    async def delete(self, run: ExperimentRun) -> None:
        """Delete a run with its cases and scores."""
        async with self._database.connection() as connection:
            await connection.execute(query("evals/experiments", "delete_run"), *self._owner, run.id)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            "The name of an experiment has up to 100 letters, digits, spaces, dots, hyphens and underscores: choose "
            "one with --name."
        )


def _to_run(row: Any) -> ExperimentRun:
    return ExperimentRun(**{name: row[name] for name in ExperimentRun.__slots__})


def _require_run(row: Any, run: ExperimentRun) -> ExperimentRun:
    if row is None:
        raise NotFoundError(f"The run {run.label} was deleted.")
    return _to_run(row)


def _to_case(row: Any) -> StoredCase:
    output = CaseOutput(row["output"], row["details"] or {}, row["seconds"] or 0.0)
    return StoredCase(row["position"], GoldenCase(**row["golden"]), output, row["error"], row["ended_at"])


def _to_storable(value: Any) -> Any:
    """Return a value as JSON that PostgreSQL can store. Raise InvalidInputError if it is no JSON."""
    try:
        return to_json_value(_clean(value))
    except ValueError as error:
        raise InvalidInputError(f"The output {error}.") from error


def _clean(value: Any) -> Any:
    """Return a value whose texts have no characters that PostgreSQL refuses, and are not endless."""
    if isinstance(value, str):
        return clean_text(value)[:MAX_TEXT_CHARS]
    if isinstance(value, Mapping):
        return {_clean(name): _clean(item) for name, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list | tuple) else value
