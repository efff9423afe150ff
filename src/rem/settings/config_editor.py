"""Change one setting in the text of a YAML file. Comments, order and all other lines stay as they are."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import BaseModel

from rem.errors import SettingsError
from rem.settings.config_file import parse_config, read_config_text

INDENT = "  "


def change_file(path: Path, model: type[BaseModel], change: Callable[[str], str]) -> None:
    """Write what `change` makes of the text of a file, which may not exist yet. Only its owner can read it then.

    The new text is checked first, and replaces the file at once. Another process that changes the file waits.
    Raise SettingsError if the file cannot be changed, or if the new text is not valid.
    """
    # A link stays a link.
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = os.open(target.parent, os.O_RDONLY)
    except OSError as error:
        raise SettingsError(f"{target.parent} cannot be used: {error.strerror}.") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        text = _apply(read_config_text(target) if target.exists() else "", path, model, change)
        parse_config(text, path, model)
        _replace(target, text)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        os.close(folder)


def _apply(text: str, path: Path, model: type[BaseModel], change: Callable[[str], str]) -> str:
    import yaml

    try:
        return change(text)
    except yaml.YAMLError:
        # Its error names the line.
        parse_config(text, path, model)
        raise


def _replace(target: Path, text: str) -> None:
    temporary = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def set_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with a value for the setting with this path, such as `("memory", "rag", "top_k")`."""
    new_text = _Editor(text).set(path, value)
    expected = _load(text)
    group = expected
    for name in path[:-1]:
        group[name] = group.get(name) or {}
        group = group[name]
    group[path[-1]] = value
    return _require_same(new_text, expected, path)


def remove_value(text: str, path: Sequence[str]) -> str:
    """Return the text without a setting. A group that becomes empty is removed as well."""
    new_text = _Editor(text).remove(path)
    return _require_same(new_text, _without(_load(text), path), path)


def find_value(text: str, path: Sequence[str]) -> Any:
    """Return the value of a setting in the text; None if it has none."""
    value: Any = _load(text)
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


class _Editor:
    """Finds the characters of a setting by its node, and replaces only them."""

    def __init__(self, text: str) -> None:
        import yaml

        self._text = text
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        self._root = root if root is not None and root.id == "mapping" else None

    def set(self, path: Sequence[str], value: Any) -> str:
        if self._root is None:
            return self._append(_format_block(path, value, ""))
        node, rest = self._find(path)
        if not rest:
            return self._replace_value(node, value)
        if _is_empty(node):
            # `memory:` without a value: its first setting begins on the next line.
            parent = self._find(path[: -len(rest) - 1])[0]
            return self._insert_lines(node, _format_block(rest, value, _indent_of(parent) + INDENT))
        if node.flow_style:
            entry = f"{rest[0]}: {_format_value(_nest(rest[1:], value))}"
            start = node.start_mark.index + 1
            return self._splice(start, start, f"{entry}, " if node.value else entry)
        return self._insert_lines(_last_leaf(node), _format_block(rest, value, _indent_of(node)))

    def remove(self, path: Sequence[str]) -> str:
        node, rest = self._find(path)
        if rest or self._root is None:
            return self._text
        parent = self._find(path[:-1])[0]
        if len(parent.value) == 1 and len(path) > 1:
            return self.remove(path[:-1])
        if parent.flow_style:
            kept = {name: value for name, value in _construct(parent).items() if name != path[-1]}
            return self._splice(parent.start_mark.index, parent.end_mark.index, _format_value(kept))
        key = next(key for key, _ in parent.value if key.value == path[-1])
        start = self._text.rfind("\n", 0, key.start_mark.index) + 1
        return self._splice(start, self._line_end(_last_leaf(node)), "")

    def _find(self, path: Sequence[str]) -> tuple[Any, Sequence[str]]:
        """Return the node of the setting, or of its innermost group that exists, and the names that are missing."""
        node: Any = self._root
        for number, name in enumerate(path):
            child = next((item for key, item in _entries(node) if key.value == name), None)
            if child is None:
                return node, path[number:]
            node = child
        return node, ()

    def _replace_value(self, node: Any, value: Any) -> str:
        if _is_empty(node):
            return self._splice(node.start_mark.index, node.start_mark.index, f" {_format_value(value)}")
        return self._splice(node.start_mark.index, _end_of(node, self._text), _format_value(value))

    def _insert_lines(self, node: Any, lines: str) -> str:
        position = self._line_end(node)
        separator = "" if self._text[:position].endswith("\n") else "\n"
        return self._splice(position, position, separator + lines)

    def _append(self, lines: str) -> str:
        separator = "" if not self._text or self._text.endswith("\n") else "\n"
        return f"{self._text}{separator}{lines}"

    def _line_end(self, node: Any) -> int:
        """Return where the line ends on which a node ends, with its comment and line break."""
        end = self._text.find("\n", _end_of(node, self._text))
        return len(self._text) if end < 0 else end + 1

    def _splice(self, start: int, end: int, new: str) -> str:
        return self._text[:start] + new + self._text[end:]


def _entries(node: Any) -> Iterator[tuple[Any, Any]]:
    if node is not None and node.id == "mapping":
        yield from node.value


def _last_leaf(node: Any) -> Any:
    """Return the last node in a node. A block ends where the next one begins, after all comments between them."""
    while node.id != "scalar" and not node.flow_style and node.value:
        node = node.value[-1][1] if node.id == "mapping" else node.value[-1]
    return node


def _end_of(node: Any, text: str) -> int:
    """Return where the text of a node ends, without the line breaks that end a block of text."""
    leaf = _last_leaf(node)
    start, end = leaf.start_mark.index, leaf.end_mark.index
    return start + len(text[start:end].rstrip()) if end > start else int(end)


def _is_empty(node: Any) -> bool:
    return bool(node.start_mark.index == node.end_mark.index)


def _indent_of(node: Any) -> str:
    """Return the indentation of the entries of a mapping."""
    return " " * (node.value[0][0].start_mark.column if node is not None and node.value else 0)


def _nest(path: Sequence[str], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def _format_block(path: Sequence[str], value: Any, indent: str) -> str:
    lines = [f"{indent}{INDENT * depth}{name}:" for depth, name in enumerate(path)]
    return "\n".join(lines) + f" {_format_value(value)}\n"


def _format_value(value: Any) -> str:
    """Return a value on one line, in quotes where YAML needs them."""
    import yaml

    dumped = yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=float("inf")).strip()
    inner = dumped[1:-1]
    return inner if "\n" not in dumped else json.dumps(value, ensure_ascii=False)


def _load(text: str) -> dict[str, Any]:
    import yaml

    data = yaml.safe_load(text)
    return _copy(data) if isinstance(data, dict) else {}


def _copy(data: dict[str, Any]) -> dict[str, Any]:
    """Return a copy in which nothing is shared. In YAML, two names can have the very same value."""
    return {name: _copy(value) if isinstance(value, dict) else value for name, value in data.items()}


def _construct(node: Any) -> dict[str, Any]:
    import yaml

    return dict(yaml.SafeLoader("").construct_document(node))


def _without(data: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    name, *rest = path
    if name not in data or (rest and not isinstance(data[name], dict)):
        return data
    if rest:
        inner = _without(data[name], rest)
        return {**data, name: inner} if inner else {key: value for key, value in data.items() if key != name}
    return {key: value for key, value in data.items() if key != name}


def _require_same(new_text: str, expected: dict[str, Any], path: Sequence[str]) -> str:
    """Return the new text if it means exactly what it should. Raise SettingsError otherwise."""
    import yaml

    try:
        is_same = _load(new_text) == expected
    except yaml.YAMLError:
        is_same = False
    if not is_same:
        raise SettingsError(f"{'.'.join(path)} cannot be changed in this file by a command: edit the file yourself.")
    return new_text
