"""YAML of strangers: what is small to read must not become large, deep or slow when it is understood."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_YAML_CHARS = 5_000_000
"""In characters."""
MAX_YAML_DEPTH = 100
MAX_YAML_VALUES = 500_000
"""Values that a text may mean, those included that its aliases repeat."""
MAX_NUMBER_CHARS = 100
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlLimitError(yaml.YAMLError):
    """A text that is valid but means more than anyone would write."""


class BoundedLoader(_Base):  # type: ignore[misc]
    """A safe loader, in C where there is one. A number that is as long as a text is a text: base 60 takes minutes."""

    def construct_yaml_int(self, node: Any) -> Any:
        return node.value if len(node.value) > MAX_NUMBER_CHARS else super().construct_yaml_int(node)

    def construct_yaml_float(self, node: Any) -> Any:
        return node.value if len(node.value) > MAX_NUMBER_CHARS else super().construct_yaml_float(node)


BoundedLoader.add_constructor("tag:yaml.org,2002:int", BoundedLoader.construct_yaml_int)
BoundedLoader.add_constructor("tag:yaml.org,2002:float", BoundedLoader.construct_yaml_float)


def load_yaml(text: str, *, aliases: bool = True) -> Any:
    """What a text means. A yaml.YAMLError or ValueError if it is not valid, or a YamlLimitError if it is too much.

    The text is looked through first, because making values of what is nested without end overflows the stack in C.
    """
    for _ in iter_yaml_events(text, aliases=aliases):
        pass
    return yaml.load(text, Loader=BoundedLoader)  # noqa: S506 - a safe loader


def iter_yaml_events(text: str, *, aliases: bool = True) -> Iterator[Any]:
    """The events of a text, as long as it keeps within its bounds."""
    if len(text) > MAX_YAML_CHARS:
        raise YamlLimitError(f"it has more than {MAX_YAML_CHARS:,} characters of YAML")
    scan = _LimitCounter(aliases)
    for event in yaml.parse(text, Loader=BoundedLoader):
        scan.see(event)
        yield event


@dataclass(slots=True)
class _LimitCounter:
    """Counts what a text means while its events come by."""

    allows_aliases: bool
    nodes: int = 0
    _open: list[tuple[str | None, int]] = field(default_factory=list)
    """Of each collection that has not ended: its anchor, and how many values there were before it."""
    _sizes: dict[str, int] = field(default_factory=dict)

    def see(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent):
            self._repeat(event.anchor)
        elif isinstance(event, yaml.ScalarEvent):
            self._add(1)
            self._name(event.anchor, 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open.append((event.anchor, self.nodes))
            self._add(1)
            if len(self._open) > MAX_YAML_DEPTH:
                raise YamlLimitError(f"it is nested more than {MAX_YAML_DEPTH} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = self._open.pop()
            self._name(anchor, self.nodes - before)

    def _repeat(self, anchor: Any) -> None:
        if not self.allows_aliases:
            raise YamlLimitError("it has aliases (*name): write the values out")
        if any(anchor == name for name, _ in self._open):
            raise YamlLimitError(f"its alias *{anchor} stands inside of what it repeats")
        self._add(self._sizes.get(anchor, 1))

    def _name(self, anchor: str | None, size: int) -> None:
        if anchor is not None:
            self._sizes[anchor] = size

    def _add(self, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_YAML_VALUES:
            raise YamlLimitError(f"it means more than {MAX_YAML_VALUES:,} values")
