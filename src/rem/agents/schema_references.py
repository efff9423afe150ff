"""What a JSON schema amounts to when its references are written out, which is how models are given it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

Path: TypeAlias = tuple[str | int, ...]
_LOCAL = re.compile(r"#/\$defs/([^/~%]+)\Z")


@dataclass(frozen=True, slots=True)
class ExpandedSize:
    """How much a schema is, all written out: how long as JSON, of how many parts, how deep, and with what is costly."""

    size: int
    nodes: int
    depth: int
    patterns: Counter[str] = field(default_factory=Counter)
    unevaluated: int = 0


def iter_nodes(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every part of a document with its place, the document itself first."""
    yield path, value
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from iter_nodes(inner, (*path, name))


def is_reference(part: Any) -> bool:
    """Whether a part of a schema stands for another; a property that is called `$ref` does not."""
    return isinstance(part, Mapping) and isinstance(part.get("$ref"), str)


def iter_patterns(part: Any) -> Iterator[tuple[Path, str]]:
    """The regular expressions of a part of a schema, without those of its own parts."""
    if not isinstance(part, Mapping):
        return
    if isinstance(part.get("pattern"), str):
        yield ("pattern",), part["pattern"]
    named = part.get("patternProperties")
    for pattern in named if isinstance(named, Mapping) else ():
        yield ("patternProperties", pattern), pattern


class ReferenceResolver:
    """What the references of a schema stand for. Only those to its own `$defs` stand for something."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._definitions: Mapping[str, Any] = schema.get("$defs", {})
        self._weights: dict[str, ExpandedSize] = {}
        self._open: set[str] = set()

    def measure(self, part: Any) -> ExpandedSize:
        """How much a part of the schema is; a ValueError says why a reference in it cannot be followed."""
        size, nodes, depth, unevaluated = len(orjson.dumps(part)), 0, 0, 0
        patterns: Counter[str] = Counter()
        for path, node in iter_nodes(part):
            nodes, depth = nodes + 1, max(depth, len(path))
            patterns.update(pattern for _, pattern in iter_patterns(node))
            if isinstance(node, Mapping):
                unevaluated += sum(name in node for name in ("unevaluatedProperties", "unevaluatedItems"))
            if is_reference(node):
                inner = self.measure_reference(node["$ref"])
                size, nodes, depth = size + inner.size, nodes + inner.nodes, max(depth, len(path) + inner.depth)
                patterns, unevaluated = patterns + inner.patterns, unevaluated + inner.unevaluated
        return ExpandedSize(size, nodes, depth, patterns, unevaluated)

    def measure_reference(self, reference: str) -> ExpandedSize:
        """How much a reference stands for."""
        name = self._name(reference)
        if name in self._open:
            raise ValueError(f"{reference!r} refers to itself, which language models cannot be asked for")
        if name not in self._weights:
            self._open.add(name)
            try:
                self._weights[name] = self.measure(self._definitions[name])
            finally:
                self._open.remove(name)
        return self._weights[name]

    def expand(self, part: Any) -> Any:
        """A part of the schema without references. What is said beside a reference goes before what it stands for."""
        if isinstance(part, list):
            return [self.expand(item) for item in part]
        if not isinstance(part, Mapping):
            return part
        inner = {name: self.expand(value) for name, value in part.items() if name != "$ref"}
        if not is_reference(part):
            return inner | ({"$ref": self.expand(part["$ref"])} if "$ref" in part else {})
        target = self.expand(self._definitions[self._name(part["$ref"])])
        if isinstance(target, bool):
            return inner if target else {**inner, "not": {}}
        return {**target, **inner}

    def _name(self, reference: str) -> str:
        local = _LOCAL.match(reference)
        if local is None or local[1] not in self._definitions:
            raise ValueError(
                f"{reference!r} leads nowhere: refer to something under $defs of the same file, as #/$defs/name"
            )
        return local[1]
