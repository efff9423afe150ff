"""How `rem:local` fills a structured answer: with what it found, never with a judgement that it cannot make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rem.agents.json_schema import check_answer
from rem.agents.local.excerpts import Excerpts
from rem.errors import ModelRequiredError

_KEYS = ("sources", "references", "keys", "source_keys")
_CONFIDENCES = ("confidence", "confidence_score")
_UNKNOWN = ("unknown", "n/a", "")
"""Choices that judge nothing; "none" or "other" would."""
_WHOLE = "the answer"


class _BeyondQuotingError(Exception):
    """A field needs something that only a language model can say."""


@dataclass(frozen=True, slots=True)
class LocalOutput:
    """What there is to say: a text, and what it rests on; without findings, the text is what the agent was given."""

    text: str
    findings: Excerpts | None = None

    def fill(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """An answer of a schema; a ModelRequiredError if its required fields ask for more than quoting."""
        try:
            answer = self._whole(schema)
        except _BeyondQuotingError as error:
            raise _beyond(str(error)) from error
        problems = check_answer(schema, answer)
        if problems:
            raise _beyond(".".join(str(part) for part in problems[0].path) or _WHOLE)
        return answer

    def _whole(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        if self.findings is not None and not schema.get("properties") and not schema.get("required"):
            # Any object will do.
            return {"answer": self.text, "confidence": self.findings.confidence, "sources": self.findings.keys}
        return self._object(schema, "", schema.get("$defs", {}))

    def _object(self, schema: Mapping[str, Any], path: str, defs: Mapping[str, Any]) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        filled: dict[str, Any] = {}
        for name, field in properties.items():
            if name not in required and not self._is_welcome(name):
                continue
            try:
                filled[name] = self._value(field, name, f"{path}.{name}".strip("."), defs)
            except _BeyondQuotingError:
                if name in required:
                    raise
        if not filled:
            # An empty object would say that there is nothing to say.
            raise _BeyondQuotingError(path or _WHOLE)
        return filled

    def _is_welcome(self, name: str) -> bool:
        """Whether an optional field is filled: the answer of a search, and what it rests on."""
        return self.findings is not None and name in ("answer", *_KEYS, *_CONFIDENCES)

    def _value(self, schema: Any, name: str, path: str, defs: Mapping[str, Any]) -> Any:
        if not isinstance(schema, Mapping):
            return self._text({}, path)
        if "$ref" in schema:
            return self._value(defs.get(str(schema["$ref"]).removeprefix("#/$defs/"), {}), name, path, defs)
        if "const" in schema:
            return schema["const"]
        if self.findings is not None and "default" in schema:
            return schema["default"]
        if "enum" in schema:
            return self._neutral(schema["enum"], path)
        return self._typed(schema, name, path, defs)

    def _typed(self, schema: Mapping[str, Any], name: str, path: str, defs: Mapping[str, Any]) -> Any:
        types = schema.get("type", "string")
        types = types if isinstance(types, list) else [types]
        if "string" in types and not {"format", "pattern"} & schema.keys():
            return self._text(schema, path)
        if self.findings is None:
            raise _BeyondQuotingError(path)
        if "array" in types and name in _KEYS and _holds_text(schema):
            most = schema.get("maxItems")
            return self.findings.keys[: None if most is None else int(most)]
        if "number" in types and name in _CONFIDENCES:
            return self.findings.confidence
        if "null" in types:
            return None
        if "object" in types:
            return self._object(schema, path, defs)
        # A list that nobody looked for is not empty but unknown.
        raise _BeyondQuotingError(path)

    def _text(self, schema: Mapping[str, Any], path: str) -> str:
        if not self.text:
            raise _BeyondQuotingError(path)
        longest = schema.get("maxLength")
        return self.text if longest is None else self.text[: int(longest)]

    def _neutral(self, values: Any, path: str) -> Any:
        for value in values if self.findings is not None and isinstance(values, list) else []:
            if value is None or (isinstance(value, str) and value.lower() in _UNKNOWN):
                return value
        raise _BeyondQuotingError(path)


def _holds_text(schema: Mapping[str, Any]) -> bool:
    items = schema.get("items")
    return not isinstance(items, Mapping) or items.get("type", "string") == "string"


def _beyond(field: str) -> ModelRequiredError:
    return ModelRequiredError(
        f"This agent needs a language model: rem:local only quotes, and cannot say {field!r}, which the answer must "
        "have. Set LLM__DEFAULT_MODEL (for example openai:gpt-4o), or name a model."
    )
