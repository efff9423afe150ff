"""Measure and expand a JSON schema whose references are replaced by their definitions, as models get it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

Path: TypeAlias = tuple[str | int, ...]
"""The position of a node in a document: the names and indexes that lead to it."""
_DEFINITION_REFERENCE = re.compile(r"#/\$defs/([^/~%]+)\Z")


@dataclass(frozen=True, slots=True)
class ExpandedSize:
    """The size of a schema with expanded references, and its costly parts."""

    size: int
    """Length as JSON, in bytes."""
    nodes: int
    depth: int
    patterns: Counter[str] = field(default_factory=Counter)
    unevaluated: int = 0
    """Number of `unevaluatedProperties` and `unevaluatedItems`."""


def iter_nodes(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every node of a document with its path, parents before children."""
    yield path, value
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, child in items:
        yield from iter_nodes(child, (*path, name))


def is_reference(node: Any) -> bool:
    """Return whether a node of a schema is a reference. A property with the name `$ref` is none."""
    return isinstance(node, Mapping) and isinstance(node.get("$ref"), str)


def iter_patterns(node: Any) -> Iterator[tuple[Path, str]]:
    """Yield the regular expressions of a node, without those of its children."""
    if not isinstance(node, Mapping):
        return
    if isinstance(node.get("pattern"), str):
        yield ("pattern",), node["pattern"]
    properties = node.get("patternProperties")
    for pattern in properties if isinstance(properties, Mapping) else ():
        yield ("patternProperties", pattern), pattern


class ReferenceResolver:
    """Resolves the references of a schema. Only references to its own `$defs` are supported."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._definitions: Mapping[str, Any] = schema.get("$defs", {})
        self._sizes: dict[str, ExpandedSize] = {}
        self._open: set[str] = set()

    def measure(self, node: Any) -> ExpandedSize:
        """Return the expanded size of a node. Raise ValueError if a reference in it cannot be resolved."""
        size, nodes, depth, unevaluated = len(orjson.dumps(node)), 0, 0, 0
        patterns: Counter[str] = Counter()
        for path, child in iter_nodes(node):
            nodes, depth = nodes + 1, max(depth, len(path))
            patterns.update(pattern for _, pattern in iter_patterns(child))
            if isinstance(child, Mapping):
                unevaluated += sum(name in child for name in ("unevaluatedProperties", "unevaluatedItems"))
            if is_reference(child):
                target = self.measure_reference(child["$ref"])
                size, nodes, depth = size + target.size, nodes + target.nodes, max(depth, len(path) + target.depth)
                patterns, unevaluated = patterns + target.patterns, unevaluated + target.unevaluated
        return ExpandedSize(size, nodes, depth, patterns, unevaluated)

    def measure_reference(self, reference: str) -> ExpandedSize:
        """Return the expanded size of the definition that a reference names. Raise ValueError if that fails."""
        name = self._get_name(reference)
        if name in self._open:
            raise ValueError(f"{reference!r} refers to itself, which language models do not support")
        if name not in self._sizes:
            self._open.add(name)
            try:
                self._sizes[name] = self.measure(self._definitions[name])
            finally:
                self._open.remove(name)
        return self._sizes[name]

    def expand(self, node: Any) -> Any:
        """Return the node without references. Keywords beside a reference override those of the definition."""
        if isinstance(node, list):
            return [self.expand(item) for item in node]
        if not isinstance(node, Mapping):
            return node
        own = {name: self.expand(value) for name, value in node.items() if name != "$ref"}
        if not is_reference(node):
            return own | ({"$ref": self.expand(node["$ref"])} if "$ref" in node else {})
        target = self.expand(self._definitions[self._get_name(node["$ref"])])
        if isinstance(target, bool):
            return own if target else {**own, "not": {}}
        return {**target, **own}

    def _get_name(self, reference: str) -> str:
        match = _DEFINITION_REFERENCE.match(reference)
        if match is None or match[1] not in self._definitions:
            raise ValueError(f"{reference!r} leads nowhere: refer to a definition of the same file, as #/$defs/name")
        return match[1]
