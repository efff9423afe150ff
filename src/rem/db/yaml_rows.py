"""Reading the YAML of `rem db load`, with the place of everything, so that an error can point at it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from rem.db.yaml import BoundedLoader
from rem.errors import InvalidInputError

_DEEPEST_NESTING = 150
_PARTS = ("table", "key_field", "rows")


@dataclass(frozen=True, slots=True)
class YamlRow:
    """A row and where it stands."""

    number: int
    line: int
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TableBlock:
    """Rows of one table."""

    file: str
    line: int
    table: str
    key_field: str
    rows: list[YamlRow]

    def locate(self, row: YamlRow) -> str:
        """Where a row is, for people: file, line, table, row and its key."""
        label = row.values.get(self.key_field)
        named = f" ({self.key_field} {label!r})" if isinstance(label, str) else ""
        return f"{self.file}:{row.line}: {self.table} row {row.number}{named}"


def read_blocks(text: str, file: str) -> list[TableBlock]:
    """The blocks of a file; an error that names file and line if it is not a list of them."""
    loader = BoundedLoader(text)
    try:
        _refuse_explosives(text, file)
        root = loader.get_single_node()
        if root is None:
            raise InvalidInputError(f"{file} is empty: it must hold a list of {{table, key_field, rows}}.")
        if not isinstance(root, yaml.SequenceNode):
            raise InvalidInputError(
                f"{file}:{_line(root)}: the file must be a list of blocks, each with table, key_field and rows."
            )
        return [_block(loader, node, file) for node in root.value]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        raise InvalidInputError(f"{place}: not valid YAML: {error.problem or error.context}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{file}: not valid YAML: {' '.join(str(error).split())}.") from error
    finally:
        loader.dispose()


def _refuse_explosives(text: str, file: str) -> None:
    """Aliases would let a few lines stand for gigabytes, and nesting without end overflows the parser's stack."""
    depth = 0
    for event in yaml.parse(text, Loader=BoundedLoader):
        if isinstance(event, yaml.AliasEvent):
            raise InvalidInputError(
                f"{file}:{_line(event)}: YAML aliases (*name) are not supported: write the value out."
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST_NESTING:
                raise InvalidInputError(f"{file}:{_line(event)}: is nested more than {_DEEPEST_NESTING} levels deep.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _block(loader: Any, node: Any, file: str) -> TableBlock:
    place = f"{file}:{_line(node)}"
    parts = _mapping(node, f"{place}: a block must have table, key_field and rows.")
    _refuse_repeated_keys(node, place)
    unknown = sorted(set(parts) - set(_PARTS))
    missing = set(_PARTS) - set(parts)
    if unknown:
        near = difflib.get_close_matches(unknown[0], _PARTS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise InvalidInputError(f"{place}: unknown {', '.join(unknown)}: a block has table, key_field and rows.{hint}")
    if missing:
        raise InvalidInputError(f"{place}: the block lacks {', '.join(sorted(missing))}.")
    for name in ("table", "key_field"):
        if not isinstance(parts[name], yaml.ScalarNode):
            raise InvalidInputError(f"{place}: {name} must be a word.")
    rows = parts["rows"]
    if not isinstance(rows, yaml.SequenceNode):
        raise InvalidInputError(f"{file}:{_line(rows)}: rows must be a list.")
    table = parts["table"].value
    return TableBlock(
        file,
        _line(node),
        table,
        parts["key_field"].value,
        [
            YamlRow(number, _line(row), _values(loader, row, f"{file}:{_line(row)}: {table} row {number}"))
            for number, row in enumerate(rows.value, start=1)
        ],
    )


def _values(loader: Any, node: Any, place: str) -> dict[str, Any]:
    _mapping(node, f"{place}: must be a mapping of fields to values.")
    for mapping in _mappings_in(node):
        _refuse_repeated_keys(mapping, place)
    values = loader.construct_document(node)
    bad = [key for key in values if not isinstance(key, str)]
    if bad:
        raise InvalidInputError(f"{place}: the field name {bad[0]!r} is not text: quote it.")
    return dict(values)


def _refuse_repeated_keys(node: Any, place: str) -> None:
    """YAML keeps the last of two equal keys and says nothing."""
    seen: set[str] = set()
    for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
        if key.value in seen:
            raise InvalidInputError(f"{place}: the field {key.value} is given more than once (line {_line(key)}).")
        seen.add(key.value)


def _mappings_in(node: Any) -> Iterator[Any]:
    """The mappings of a value at every depth."""
    pending = [node]
    while pending:
        collection = pending.pop()
        is_mapping = isinstance(collection, yaml.MappingNode)
        if is_mapping:
            yield collection
        values = (value for _, value in collection.value) if is_mapping else collection.value
        pending += [value for value in values if isinstance(value, yaml.CollectionNode)]


def _mapping(node: Any, message: str) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise InvalidInputError(message)
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1
