"""Parse front matter: YAML between two lines of dashes at the start of a text."""

from __future__ import annotations

import math
from datetime import date, datetime
from typing import Any

import yaml

from rem.db.yaml import BoundedLoader, load_yaml
from rem.text import clean_text, find_front_matter

MAX_DEPTH = 20
NAME_FIELDS = ("title", "alias", "aliases", "tag", "tags")
"""Fields that people write as words, whatever YAML makes of them."""


def parse_front_matter(text: str) -> tuple[dict[str, Any] | None, int]:
    """Return the front matter as JSON values, or None, and the offset of the text after it. Invalid YAML is ignored."""
    match = find_front_matter(text)
    if match is None:
        return None, 0
    try:
        values = load_yaml(match["yaml"], aliases=False)
        front_matter = _to_json(_spell_names(match["yaml"], values)) if isinstance(values, dict) else None
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, TypeError, LookupError, AttributeError):
        front_matter = None
    return front_matter or None, match.end()


def _spell_names(text: str, values: dict[Any, Any]) -> dict[Any, Any]:
    """Return the values with the names as they are written: YAML reads the alias `ON` as true, and `1.10` as 1.1."""
    root = yaml.compose(text, Loader=BoundedLoader)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    spelt = {
        key.value: _spell(node, values[key.value])
        for key, node in pairs
        if isinstance(key, yaml.ScalarNode) and key.value in NAME_FIELDS and key.value in values
    }
    return values | spelt


def _spell(node: yaml.Node, value: Any) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return value if value is None else node.value
    if isinstance(node, yaml.SequenceNode) and isinstance(value, list):
        return [_spell(item, item_value) for item, item_value in zip(node.value, value, strict=True)]
    return value


def _to_json(value: Any, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError("too deep")
    if isinstance(value, dict):
        return {clean_text(str(key)): _to_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_to_json(item, depth + 1) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int):
        return value
    return value.isoformat() if isinstance(value, date | datetime) else clean_text(str(value))
