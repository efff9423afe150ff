"""How `rem:local` fills a structured answer: with what it found, never with a judgement that it cannot make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rem.agents.json_schema import answer_problems
from rem.agents.local_findings import Findings
from rem.errors import ModelError

_KEYS = ("sources", "references", "keys", "source_keys")
_CONFIDENCES = ("confidence", "confidence_score")
_NEUTRAL = ("none", "unknown", "other", "neutral", "n/a", "")


class _BeyondQuotingError(Exception):
    """A field needs something that only a language model can say."""


@dataclass(frozen=True, slots=True)
class LocalOutput:
    """What there is to say: a text, and what it rests on."""

    text: str
    findings: Findings

    def fill(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """An answer of a schema; a ModelError if its required fields ask for more than quoting."""
        try:
            answer: dict[str, Any] = self._object(schema, "", schema.get("$defs", {}))
        except _BeyondQuotingError as error:
            raise _beyond(str(error)) from error
        problems = answer_problems(schema, answer)
        if problems:
            raise _beyond(".".join(str(part) for part in problems[0].path) or "the answer")
        return answer

    def _object(self, schema: Mapping[str, Any], path: str, defs: Mapping[str, Any]) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        # Optional fields are left out, but for those that say what the answer rests on.
        wanted = [name for name in properties if name in required or name in (*_KEYS, *_CONFIDENCES)]
        return {name: self._value(properties[name], name, f"{path}.{name}".strip("."), defs) for name in wanted}

    def _value(self, schema: Any, name: str, path: str, defs: Mapping[str, Any]) -> Any:
        if not isinstance(schema, Mapping):
            return self.text
        if "$ref" in schema:
            return self._value(defs.get(str(schema["$ref"]).removeprefix("#/$defs/"), {}), name, path, defs)
        for fixed in ("const", "default"):
            if fixed in schema:
                return schema[fixed]
        if "enum" in schema:
            return _neutral(schema["enum"], path)
        return self._typed(schema, name, path, defs)

    def _typed(self, schema: Mapping[str, Any], name: str, path: str, defs: Mapping[str, Any]) -> Any:
        types = schema.get("type", "string")
        types = types if isinstance(types, list) else [types]
        if "string" in types and "format" not in schema and "pattern" not in schema:
            return self._text(schema)
        if "array" in types:
            return self._list(schema, name)
        if "object" in types:
            return self._object(schema, path, defs)
        if "number" in types and name in _CONFIDENCES:
            return self.findings.confidence
        if "null" in types:
            return None
        raise _BeyondQuotingError(path)

    def _text(self, schema: Mapping[str, Any]) -> str:
        longest = schema.get("maxLength")
        return self.text if longest is None else self.text[: int(longest)]

    def _list(self, schema: Mapping[str, Any], name: str) -> list[Any]:
        items = schema.get("items")
        holds_text = not isinstance(items, Mapping) or items.get("type", "string") == "string"
        if name in _KEYS and holds_text:
            return self.findings.keys[: schema.get("maxItems")]
        return []


def _neutral(values: Any, path: str) -> Any:
    for value in values if isinstance(values, list) else []:
        if value is None or (isinstance(value, str) and value.lower() in _NEUTRAL):
            return value
    raise _BeyondQuotingError(path)


def _beyond(field: str) -> ModelError:
    return ModelError(
        f"rem:local only quotes what is stored and cannot say {field!r}, which this agent's answer needs: set "
        "LLM__DEFAULT_MODEL, or name a model."
    )
