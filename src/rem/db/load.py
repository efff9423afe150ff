"""`rem db load`: YAML into the store, all of it or nothing."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rem.db.repository import Outcome, RowError
from rem.db.sql import query
from rem.db.store import Store
from rem.db.yaml_rows import TableBlock, YamlRow, read_blocks
from rem.errors import InvalidInputError, RemError
from rem.models import Edge, Entity

RowProgress = Callable[[int, int], None]
_MOST_PROBLEMS = 20
_ROWS_AT_ONCE = 10_000
_GIVEN_BY_STORE = ("tenant_id", "user_id", "key")


@dataclass(slots=True)
class LoadReport:
    """What a load did, by table, and what it left alone because it was deleted before."""

    tables: dict[str, Counter[Outcome]] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    dangling: int = 0

    @property
    def rows(self) -> int:
        """How many rows the files had."""
        return sum(counts.total() for counts in self.tables.values())


def read_files(paths: Sequence[Path]) -> list[TableBlock]:
    """The blocks of some files."""
    blocks: list[TableBlock] = []
    for path in paths:
        try:
            blocks += read_blocks(path.read_text(encoding="utf-8"), str(path))
        except OSError as error:
            raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8.") from error
    return blocks


async def load(store: Store, blocks: Sequence[TableBlock], on_rows: RowProgress | None = None) -> LoadReport:
    """Store the rows in the store's scope. Loading twice updates; the first bad row undoes everything."""
    entities = _validated(store, blocks)
    total = sum(len(block.rows) for block in blocks)
    report = LoadReport()
    done = 0
    async with store.transaction() as transaction:
        for block, batch in zip(blocks, entities, strict=True):
            counts = report.tables.setdefault(block.table, Counter())
            for start in range(0, len(batch), _ROWS_AT_ONCE):
                part = block.rows[start : start + _ROWS_AT_ONCE]
                written = await _store_rows(transaction, block, part, batch[start : start + _ROWS_AT_ONCE])
                counts.update(row.outcome for row in written.rows)
                report.deleted += [f"{block.table}/{key}" for key in written.skipped_keys]
                done += len(part)
                if on_rows:
                    on_rows(done, total)
        report.dangling = await transaction.count_dangling_edges()
    return report


def _validated(store: Store, blocks: Sequence[TableBlock]) -> list[list[Entity]]:
    """The entities of all blocks, or one error that lists what is wrong with them."""
    problems: list[str] = []
    entities = [_entities(store, block, problems) for block in blocks]
    if problems:
        shown = problems[:_MOST_PROBLEMS]
        more = [f"... and {len(problems) - len(shown)} more"] if len(problems) > len(shown) else []
        raise InvalidInputError("Nothing was loaded:\n" + "\n".join(f"  {line}" for line in shown + more))
    return entities


def _entities(store: Store, block: TableBlock, problems: list[str]) -> list[Entity]:
    try:
        model = store.types.get_model(block.table)
    except InvalidInputError as error:
        problems.append(f"{block.file}:{block.line}: {error}")
        return []
    if block.key_field not in (*model.entity_type.key_fields, "id"):
        choices = " or ".join(dict.fromkeys((*model.entity_type.key_fields, "id")))
        problems.append(
            f"{block.file}:{block.line}: the key_field of {block.table} is {choices}, not {block.key_field}."
        )
        return []
    entities = []
    for row in block.rows:
        found = _row_problems(model, block, row)
        if found:
            problems += [f"{block.locate(row)}: {problem}" for problem in found]
            continue
        entity = _entity(model, row.values, f"{block.locate(row)}: ", problems)
        entities += [entity] if entity else []
    return entities


def _row_problems(model: type[Entity], block: TableBlock, row: YamlRow) -> list[str]:
    problems = [
        f"field {name}: is given by the store: leave it out (choose the owner with --user and --tenant)."
        for name in _GIVEN_BY_STORE
        if name in row.values
    ]
    if row.values.get(block.key_field) in (None, ""):
        problems.append(f"field {block.key_field}: is missing, and it is the key of the row.")
    return problems


def _entity(model: type[Entity], values: dict[str, Any], place: str, problems: list[str]) -> Entity | None:
    try:
        return model(**values)
    except ValidationError as error:
        problems += [f"{place}{_describe(problem, model)}" for problem in error.errors()]
        return None


def _describe(problem: Any, model: type[Entity]) -> str:
    """One problem of a Pydantic error in a line: the field and what is wrong with it."""
    field_path = ".".join(str(part) for part in problem["loc"])
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        known = Edge.model_fields if problem["loc"][0] == "graph_edges" else model.model_fields
        message = f"there is no such field{_did_you_mean(str(problem['loc'][-1]), known)}"
    if not field_path:
        # A rule over several fields names the field itself.
        field_path, _, message = message.partition(": ")
    return f"field {field_path}: {message[:1].lower()}{message[1:]}"


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, [field for field in known if field not in _GIVEN_BY_STORE], n=1)
    return f": did you mean {near[0]}?" if near else ""


async def _store_rows(store: Store, block: TableBlock, rows: Sequence[YamlRow], batch: Sequence[Entity]) -> Any:
    if block.key_field == "email":
        await _adopt_ids_by_email(store, batch)
    try:
        async with store.transaction() as attempt:
            return await attempt.upsert_many(batch)
    except RowError as error:
        raise InvalidInputError(f"Nothing was loaded:\n  {block.locate(rows[error.row])}: {error}") from error
    except RemError as error:
        row = await _culprit(store, rows, batch)
        raise type(error)(f"Nothing was loaded:\n  {block.locate(row) if row else block.file}: {error}") from error


async def _culprit(store: Store, rows: Sequence[YamlRow], batch: Sequence[Entity]) -> YamlRow | None:
    """The first row that the database refuses when it comes alone, found by trying: the transaction is lost anyway."""
    for row, entity in zip(rows, batch, strict=True):
        try:
            async with store.transaction() as attempt:
                await attempt.upsert_many([entity])
        except RemError:
            return row
    return None


async def _adopt_ids_by_email(store: Store, batch: Sequence[Entity]) -> None:
    """Rows that are known by their e-mail address mean the stored user with that address, whatever its name."""
    emails = [getattr(entity, "email", None) or "" for entity in batch]
    async with store.executor.connection() as connection:
        stored = await connection.fetch(
            query("lookup", "users_by_email"), store.scope.tenant_id, store.scope.user_id, emails
        )
    for position, user_id, name in stored:
        entity = batch[position - 1]
        if "name" not in entity.model_fields_set or getattr(entity, "name", None) == emails[position - 1]:
            entity.__dict__["name"] = name
        entity.id = user_id
