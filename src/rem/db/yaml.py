"""Read YAML from untrusted sources, with limits on size, depth and the values that aliases repeat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_YAML_CHARS = 5_000_000
"""A longer text takes more than some seconds to parse."""
MAX_YAML_DEPTH = 100
"""Deep nesting overflows the stack of the C parser."""
MAX_YAML_VALUES = 500_000
"""Values of a text after its aliases are expanded. A few lines of aliases can mean gigabytes."""
MAX_NUMBER_CHARS = 100
"""YAML converts `1:1:1:…` from base 60, which takes minutes for a long number."""
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlLimitError(yaml.YAMLError):
    """The text is valid YAML, but exceeds a limit."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class YamlLimits:
    """Limits of one text. None means no limit."""

    max_chars: int | None = MAX_YAML_CHARS
    max_depth: int = MAX_YAML_DEPTH
    max_values: int | None = MAX_YAML_VALUES
    allows_aliases: bool = True


class BoundedLoader(_Base):  # type: ignore[misc]
    """A safe loader, in C if it is available. It loads a very long number as text."""

    def construct_yaml_int(self, node: Any) -> Any:
        return node.value if len(node.value) > MAX_NUMBER_CHARS else super().construct_yaml_int(node)

    def construct_yaml_float(self, node: Any) -> Any:
        return node.value if len(node.value) > MAX_NUMBER_CHARS else super().construct_yaml_float(node)


BoundedLoader.add_constructor("tag:yaml.org,2002:int", BoundedLoader.construct_yaml_int)
BoundedLoader.add_constructor("tag:yaml.org,2002:float", BoundedLoader.construct_yaml_float)


def load_yaml(text: str, *, aliases: bool = True) -> Any:
    """Return the value of a YAML text.

    Raise YamlLimitError if it exceeds a limit, and another yaml.YAMLError or a ValueError if it is not valid. The
    limits are checked before any value is built, because building deeply nested values overflows the stack in C.
    """
    for _ in iter_yaml_events(text, YamlLimits(allows_aliases=aliases)):
        pass
    return yaml.load(text, Loader=BoundedLoader)  # noqa: S506 - a safe loader


def iter_yaml_events(text: str, limits: YamlLimits | None = None) -> Iterator[Any]:
    """Yield the parser events of a text. Raise YamlLimitError at the first event that exceeds a limit."""
    limits = limits or YamlLimits()
    if limits.max_chars is not None and len(text) > limits.max_chars:
        raise YamlLimitError(f"it has more than {limits.max_chars:,} characters of YAML")
    counter = _LimitCounter(limits)
    for event in yaml.parse(text, Loader=BoundedLoader):
        counter.add_event(event)
        yield event


@dataclass(slots=True)
class _LimitCounter:
    """Counts the depth and the values of a text, event by event."""

    limits: YamlLimits
    values: int = 0
    _open: list[tuple[str | None, int]] = field(default_factory=list)
    """For each open collection: its anchor, and the number of values before it."""
    _sizes: dict[str, int] = field(default_factory=dict)
    """The number of values below each anchor."""

    def add_event(self, event: Any) -> None:
        line = int(event.start_mark.line) + 1
        if isinstance(event, yaml.AliasEvent):
            self._add_alias(event.anchor, line)
        elif isinstance(event, yaml.ScalarEvent):
            self._add_values(1, line)
            self._set_size(event.anchor, 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open.append((event.anchor, self.values))
            self._add_values(1, line)
            if len(self._open) > self.limits.max_depth:
                raise YamlLimitError(f"it is nested more than {self.limits.max_depth} levels deep", line)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, values_before = self._open.pop()
            self._set_size(anchor, self.values - values_before)

    def _add_alias(self, anchor: Any, line: int) -> None:
        if not self.limits.allows_aliases:
            raise YamlLimitError("YAML aliases (*name) are not supported: write the value out", line)
        if any(anchor == name for name, _ in self._open):
            raise YamlLimitError(f"its alias *{anchor} is inside the value that it repeats", line)
        self._add_values(self._sizes.get(anchor, 1), line)

    def _set_size(self, anchor: str | None, size: int) -> None:
        if anchor is not None:
            self._sizes[anchor] = size

    def _add_values(self, count: int, line: int) -> None:
        self.values += count
        if self.limits.max_values is not None and self.values > self.limits.max_values:
            raise YamlLimitError(f"it means more than {self.limits.max_values:,} values", line)
