"""Parse the YAML files of `rem db load`, with the line of every row, so that errors can name it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from rem.db.yaml import BoundedLoader, YamlLimitError, YamlLimits, iter_yaml_events
from rem.errors import InvalidInputError

LIMITS = YamlLimits(max_chars=None, max_depth=150, max_values=None, allows_aliases=False)
"""A dump may be large. Metadata may have 100 levels, and a row adds some around it."""
_BLOCK_FIELDS = ("table", "key_field", "rows")


@dataclass(frozen=True, slots=True)
class YamlRow:
    """One row, its number within the block (from 1) and its line in the file."""

    number: int
    line: int
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TableBlock:
    """The rows of one table in a file."""

    file: str
    line: int
    table: str
    key_field: str
    rows: list[YamlRow]

    def locate(self, row: YamlRow) -> str:
        """Return the location of a row for error messages: file, line, table, number and key."""
        label = row.values.get(self.key_field)
        key = f" ({self.key_field} {label!r})" if isinstance(label, str) else ""
        return f"{self.file}:{row.line}: {self.table} row {row.number}{key}"


def read_blocks(text: str, file: str) -> list[TableBlock]:
    """Parse the text of a file. Raise InvalidInputError with file and line if it is not a list of blocks."""
    loader = BoundedLoader(text)
    try:
        for _ in iter_yaml_events(text, LIMITS):
            pass
        root = loader.get_single_node()
        if root is None:
            raise InvalidInputError(f"{file} is empty: it must hold a list of {{table, key_field, rows}}.")
        if not isinstance(root, yaml.SequenceNode):
            raise InvalidInputError(
                f"{file}:{_get_line(root)}: the file must be a list of blocks, each with table, key_field and rows."
            )
        return [_parse_block(loader, node, file) for node in root.value]
    except YamlLimitError as error:
        raise InvalidInputError(f"{file}:{error.line}: {error}.") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        location = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        raise InvalidInputError(f"{location}: not valid YAML: {error.problem or error.context}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{file}: not valid YAML: {' '.join(str(error).split())}.") from error
    finally:
        loader.dispose()


def _parse_block(loader: Any, node: Any, file: str) -> TableBlock:
    location = f"{file}:{_get_line(node)}"
    fields = _get_fields(node, f"{location}: a block must have table, key_field and rows.")
    _refuse_repeated_keys(node, location)
    unknown = sorted(set(fields) - set(_BLOCK_FIELDS))
    missing = set(_BLOCK_FIELDS) - set(fields)
    if unknown:
        similar = difflib.get_close_matches(unknown[0], _BLOCK_FIELDS, n=1)
        hint = f" Did you mean {similar[0]}?" if similar else ""
        raise InvalidInputError(
            f"{location}: unknown {', '.join(unknown)}: a block has table, key_field and rows.{hint}"
        )
    if missing:
        raise InvalidInputError(f"{location}: the block lacks {', '.join(sorted(missing))}.")
    for name in ("table", "key_field"):
        if not isinstance(fields[name], yaml.ScalarNode):
            raise InvalidInputError(f"{location}: {name} must be a word.")
    rows = fields["rows"]
    if not isinstance(rows, yaml.SequenceNode):
        raise InvalidInputError(f"{file}:{_get_line(rows)}: rows must be a list.")
    table = fields["table"].value
    return TableBlock(
        file,
        _get_line(node),
        table,
        fields["key_field"].value,
        [
            YamlRow(number, _get_line(row), _parse_row(loader, row, f"{file}:{_get_line(row)}: {table} row {number}"))
            for number, row in enumerate(rows.value, start=1)
        ],
    )


def _parse_row(loader: Any, node: Any, location: str) -> dict[str, Any]:
    _get_fields(node, f"{location}: must be a mapping of fields to values.")
    for mapping in _iter_mappings(node):
        _refuse_repeated_keys(mapping, location)
    values = loader.construct_document(node)
    bad_names = [name for name in values if not isinstance(name, str)]
    if bad_names:
        raise InvalidInputError(f"{location}: the field name {bad_names[0]!r} is not text: quote it.")
    return dict(values)


def _refuse_repeated_keys(node: Any, location: str) -> None:
    """Raise InvalidInputError if a mapping repeats a key. YAML itself silently keeps the last value."""
    seen: set[str] = set()
    for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
        if key.value in seen:
            raise InvalidInputError(
                f"{location}: the field {key.value} is given more than once (line {_get_line(key)})."
            )
        seen.add(key.value)


def _iter_mappings(node: Any) -> Iterator[Any]:
    """Yield the mappings inside a node at every depth."""
    pending = [node]
    while pending:
        collection = pending.pop()
        is_mapping = isinstance(collection, yaml.MappingNode)
        if is_mapping:
            yield collection
        values = (value for _, value in collection.value) if is_mapping else collection.value
        pending += [value for value in values if isinstance(value, yaml.CollectionNode)]


def _get_fields(node: Any, message: str) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise InvalidInputError(message)
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def _get_line(node: Any) -> int:
    return int(node.start_mark.line) + 1
