"""Fill a structured answer of `rem:local` with excerpts, and refuse fields that need a language model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rem.agents.json_schema import check_answer
from rem.agents.local.excerpts import Excerpts
from rem.errors import ModelRequiredError

_KEY_FIELDS = ("sources", "references", "keys", "source_keys")
_CONFIDENCE_FIELDS = ("confidence", "confidence_score")
_NEUTRAL_CHOICES = ("unknown", "n/a", "")
"""Choices that state nothing. "none" and "other" are statements."""
_WHOLE_ANSWER = "the answer"


class _ModelRequiredForFieldError(Exception):
    """A field needs a language model. The message is the path of the field."""


@dataclass(frozen=True, slots=True)
class LocalOutput:
    """The content of an answer: a text and its excerpts. Without excerpts, the text is the input of the agent."""

    text: str
    excerpts: Excerpts | None = None

    def fill(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer that matches the schema. Raise ModelRequiredError if a required field needs a model."""
        try:
            answer = self._fill_schema(schema)
        except _ModelRequiredForFieldError as error:
            raise _make_error(str(error)) from error
        issues = check_answer(schema, answer)
        if issues:
            raise _make_error(".".join(str(part) for part in issues[0].path) or _WHOLE_ANSWER)
        return answer

    def _fill_schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        if self.excerpts is not None and not schema.get("properties") and not schema.get("required"):
            # The schema accepts any object.
            return {"answer": self.text, "confidence": self.excerpts.confidence, "sources": self.excerpts.keys}
        return self._fill_object(schema, "", schema.get("$defs", {}))

    def _fill_object(self, schema: Mapping[str, Any], path: str, defs: Mapping[str, Any]) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        filled: dict[str, Any] = {}
        for name, field in properties.items():
            if name not in required and not self._is_optional_field_filled(name):
                continue
            try:
                filled[name] = self._fill_value(field, name, f"{path}.{name}".strip("."), defs)
            except _ModelRequiredForFieldError:
                if name in required:
                    raise
        if not filled:
            # An empty object would state that there is nothing.
            raise _ModelRequiredForFieldError(path or _WHOLE_ANSWER)
        return filled

    def _is_optional_field_filled(self, name: str) -> bool:
        """Return whether an optional field is filled: the answer of a search, its sources and its confidence."""
        return self.excerpts is not None and name in ("answer", *_KEY_FIELDS, *_CONFIDENCE_FIELDS)

    def _fill_value(self, schema: Any, name: str, path: str, defs: Mapping[str, Any]) -> Any:
        if not isinstance(schema, Mapping):
            return self._fill_text({}, path)
        if "$ref" in schema:
            return self._fill_value(defs.get(str(schema["$ref"]).removeprefix("#/$defs/"), {}), name, path, defs)
        if "const" in schema:
            return schema["const"]
        if self.excerpts is not None and "default" in schema:
            return schema["default"]
        if "enum" in schema:
            return self._choose_neutral(schema["enum"], path)
        return self._fill_type(schema, name, path, defs)

    def _fill_type(self, schema: Mapping[str, Any], name: str, path: str, defs: Mapping[str, Any]) -> Any:
        types = schema.get("type", "string")
        types = types if isinstance(types, list) else [types]
        if "string" in types and not {"format", "pattern"} & schema.keys():
            return self._fill_text(schema, path)
        if self.excerpts is None:
            raise _ModelRequiredForFieldError(path)
        if "array" in types and name in _KEY_FIELDS and _holds_text(schema):
            max_items = schema.get("maxItems")
            return self.excerpts.keys[: None if max_items is None else int(max_items)]
        if "number" in types and name in _CONFIDENCE_FIELDS:
            return self.excerpts.confidence
        if "null" in types:
            return None
        if "object" in types:
            return self._fill_object(schema, path, defs)
        # An empty list would state that there is nothing; its content is unknown.
        raise _ModelRequiredForFieldError(path)

    def _fill_text(self, schema: Mapping[str, Any], path: str) -> str:
        if not self.text:
            raise _ModelRequiredForFieldError(path)
        max_chars = schema.get("maxLength")
        return self.text if max_chars is None else self.text[: int(max_chars)]

    def _choose_neutral(self, values: Any, path: str) -> Any:
        for value in values if self.excerpts is not None and isinstance(values, list) else []:
            if value is None or (isinstance(value, str) and value.lower() in _NEUTRAL_CHOICES):
                return value
        raise _ModelRequiredForFieldError(path)


def _holds_text(schema: Mapping[str, Any]) -> bool:
    items = schema.get("items")
    return not isinstance(items, Mapping) or items.get("type", "string") == "string"


def _make_error(field: str) -> ModelRequiredError:
    return ModelRequiredError(
        f"This agent needs a language model: rem:local only quotes, and cannot fill {field!r}, which the answer must "
        "have. Set LLM__DEFAULT_MODEL (for example openai:gpt-4o), or name a model."
    )
