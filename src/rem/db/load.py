"""`rem db load`: store the rows of YAML files, all or none."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rem.db.repository import Outcome, RowError, WriteReport
from rem.db.sql import query
from rem.db.store import Store
from rem.db.yaml_rows import TableBlock, YamlRow, read_blocks
from rem.errors import InvalidInputError, RemError
from rem.models import Edge, Entity

RowProgress = Callable[[int, int], None]
"""Called with the number of stored rows and the total."""
MAX_REPORTED_ISSUES = 20
ROWS_PER_BATCH = 10_000
_SET_BY_STORE = ("tenant_id", "user_id", "key")


@dataclass(slots=True)
class LoadReport:
    """The outcomes of a load by table, the skipped deleted rows, and the number of dangling edges."""

    tables: dict[str, Counter[Outcome]] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    dangling: int = 0

    @property
    def rows(self) -> int:
        """Count the rows of all files."""
        return sum(counts.total() for counts in self.tables.values())


def read_files(paths: Sequence[Path]) -> list[TableBlock]:
    """Parse files. Raise InvalidInputError that names the file if one cannot be read."""
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
    """Store the rows in the scope of the store. A second load updates them. The first bad row undoes everything."""
    entities = _build_entities(store, blocks)
    total = sum(len(block.rows) for block in blocks)
    report = LoadReport()
    done = 0
    async with store.transaction() as transaction:
        for block, batch in zip(blocks, entities, strict=True):
            counts = report.tables.setdefault(block.table, Counter())
            for start in range(0, len(batch), ROWS_PER_BATCH):
                part = block.rows[start : start + ROWS_PER_BATCH]
                written = await _store_rows(transaction, block, part, batch[start : start + ROWS_PER_BATCH])
                counts.update(row.outcome for row in written.rows)
                report.deleted += [f"{block.table}/{key}" for key in written.skipped_keys]
                done += len(part)
                if on_rows:
                    on_rows(done, total)
        report.dangling = await transaction.count_dangling_edges()
    return report


def _build_entities(store: Store, blocks: Sequence[TableBlock]) -> list[list[Entity]]:
    """Return the entities of all blocks. Raise one InvalidInputError that lists the issues."""
    issues: list[str] = []
    entities = [_build_block_entities(store, block, issues) for block in blocks]
    if issues:
        shown = issues[:MAX_REPORTED_ISSUES]
        more = [f"... and {len(issues) - len(shown)} more"] if len(issues) > len(shown) else []
        raise InvalidInputError("Nothing was loaded:\n" + "\n".join(f"  {line}" for line in shown + more))
    return entities


def _build_block_entities(store: Store, block: TableBlock, issues: list[str]) -> list[Entity]:
    try:
        model = store.types.get_model(block.table)
    except InvalidInputError as error:
        issues.append(f"{block.file}:{block.line}: {error}")
        return []
    if block.key_field not in (*model.entity_type.key_fields, "id"):
        choices = " or ".join(dict.fromkeys((*model.entity_type.key_fields, "id")))
        issues.append(f"{block.file}:{block.line}: the key_field of {block.table} is {choices}, not {block.key_field}.")
        return []
    entities = []
    for row in block.rows:
        row_issues = _find_row_issues(block, row)
        if row_issues:
            issues += [f"{block.locate(row)}: {issue}" for issue in row_issues]
            continue
        entity = _build_entity(model, row.values, f"{block.locate(row)}: ", issues)
        entities += [entity] if entity else []
    return entities


def _find_row_issues(block: TableBlock, row: YamlRow) -> list[str]:
    issues = [
        f"field {name}: is set by the store: leave it out (choose the owner with --user and --tenant)."
        for name in _SET_BY_STORE
        if name in row.values
    ]
    if row.values.get(block.key_field) in (None, ""):
        issues.append(f"field {block.key_field}: is missing, and it is the key of the row.")
    return issues


def _build_entity(model: type[Entity], values: dict[str, Any], location: str, issues: list[str]) -> Entity | None:
    try:
        return model(**values)
    except ValidationError as error:
        issues += [f"{location}{_describe(issue, model)}" for issue in error.errors()]
        return None


def _describe(issue: Any, model: type[Entity]) -> str:
    """Format one issue of a Pydantic error: the field and the message."""
    field_path = ".".join(str(part) for part in issue["loc"])
    message = str(issue["msg"]).removeprefix("Value error, ")
    if issue["type"] == "extra_forbidden":
        fields = Edge.model_fields if issue["loc"][0] == "graph_edges" else model.model_fields
        message = f"there is no such field{_suggest_field(str(issue['loc'][-1]), fields)}"
    if not field_path:
        # A validator of the whole model puts the field into its message.
        field_path, _, message = message.partition(": ")
    return f"field {field_path}: {message[:1].lower()}{message[1:]}"


def _suggest_field(name: str, fields: Iterable[str]) -> str:
    similar = difflib.get_close_matches(name, [field for field in fields if field not in _SET_BY_STORE], n=1)
    return f": did you mean {similar[0]}?" if similar else ""


async def _store_rows(store: Store, block: TableBlock, rows: Sequence[YamlRow], batch: Sequence[Entity]) -> WriteReport:
    if block.key_field == "email":
        await _adopt_ids_by_email(store, batch)
    try:
        async with store.transaction() as attempt:
            return await attempt.upsert_many(batch)
    except RowError as error:
        raise InvalidInputError(f"Nothing was loaded:\n  {block.locate(rows[error.row])}: {error}") from error
    except RemError as error:
        row = await _find_bad_row(store, rows, batch)
        raise type(error)(f"Nothing was loaded:\n  {block.locate(row) if row else block.file}: {error}") from error


async def _find_bad_row(store: Store, rows: Sequence[YamlRow], batch: Sequence[Entity]) -> YamlRow | None:
    """Return the first row that the database refuses. Try each row alone: the transaction is lost anyway."""
    for row, entity in zip(rows, batch, strict=True):
        try:
            async with store.transaction() as attempt:
                await attempt.upsert_many([entity])
        except RemError:
            return row
    return None


async def _adopt_ids_by_email(store: Store, batch: Sequence[Entity]) -> None:
    """Give each user the id of the stored user with the same e-mail address, so that the load updates it."""
    emails = [getattr(entity, "email", None) or "" for entity in batch]
    async with store.executor.connection() as connection:
        stored = await connection.fetch(
            query("db/lookup", "users_by_email"), store.scope.tenant_id, store.scope.user_id, emails
        )
    for position, user_id, name in stored:
        entity = batch[position - 1]
        if "name" not in entity.model_fields_set or getattr(entity, "name", None) == emails[position - 1]:
            entity.__dict__["name"] = name
        entity.id = user_id
