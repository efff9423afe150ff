"""An entity as people read it."""

from __future__ import annotations

import json
import shutil
import textwrap
from typing import Any

from rem.models import Entity

_HIDDEN = {"id", "key", "tenant_id", "user_id", "graph_edges"}
_FIRST_SHARED = ("tags", "metadata")
_LAST_SHARED = ("expires_at", "created_at", "updated_at")
_LONGEST_VECTOR = 16
# A stored escape sequence must not reach the terminal.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}


def format_entity(entity: Entity, *, ownership: str = "") -> str:
    """Where it is, then what it holds: its class's own fields first, nothing that is empty."""
    width = shutil.get_terminal_size().columns
    lines = [f"{entity.entity_type.table}/{entity.key or entity.id}{f' ({ownership})' if ownership else ''}"]
    values = entity.model_dump(mode="json", exclude=_HIDDEN)
    for name in _order(type(entity)):
        if not _is_noise(name, values[name]):
            lines += _wrapped(f"{name}: {_text(values[name])}", width)
    lines += [escape_control_characters(f"  -> {edge.rel_type} {edge.dst}") for edge in entity.graph_edges]
    return "\n".join(lines)


def _order(model: type[Entity]) -> list[str]:
    own = [name for name in model.model_fields if name not in Entity.model_fields]
    derived = [name for name in Entity.model_fields if name not in {*_HIDDEN, *_FIRST_SHARED, *_LAST_SHARED}]
    return [*sorted(own, key=lambda name: name != "name"), *_FIRST_SHARED, *derived, *_LAST_SHARED]


def _is_noise(name: str, value: Any) -> bool:
    return value in (None, "", [], {}) or (name == "origin" and value == Entity.model_fields["origin"].default)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        if len(value) > _LONGEST_VECTOR and all(isinstance(item, float) for item in value):
            return f"{len(value)} numbers"
        return ", ".join(_text(item) for item in value)
    return json.dumps(value, ensure_ascii=False)


def _wrapped(text: str, width: int) -> list[str]:
    wrapper = textwrap.TextWrapper(width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    lines = []
    for number, line in enumerate(escape_control_characters(text.replace("\r\n", "\n").rstrip("\n")).split("\n")):
        wrapper.initial_indent = "    " if number else "  "
        lines += wrapper.wrap(line) or [""]
    return lines


def escape_control_characters(text: str) -> str:
    """The text with its control characters spelt out."""
    return text.translate(_CONTROLS)
