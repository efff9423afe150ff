"""ExtractionSchema: the JSON schema of the data that an agent extracts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import time
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from rem.dreams.extraction_model import digest_texts
from rem.errors import InvalidAgentError

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator


MAX_SCHEMA_BYTES = 64 * 1024
MAX_PATTERN_BYTES = 128 * 1024
"""Compiled, to bound memory."""
MAX_ERRORS = 5
MAX_ERROR_CHARS = 200


class ExtractionSchema:
    """The JSON schema of an agent's output. Creating one that cannot be used raises InvalidAgentError."""

    def __init__(self, agent: str, document: Mapping[str, Any]) -> None:
        self.agent = agent
        self.document = dict(document)
        self.properties: dict[str, Any] = dict(document.get("properties") or {})
        self.required: list[str] = list(document.get("required") or [])
        try:
            text = orjson.dumps(self.document, option=orjson.OPT_SORT_KEYS)
        except TypeError as error:
            raise InvalidAgentError(f"The schema of the agent {agent} cannot be used: {error}") from error
        if len(text) > MAX_SCHEMA_BYTES or not self.properties:
            raise InvalidAgentError(f"The agent {agent} has no properties to extract, or more than 64 KB of them.")
        self.digest = digest_texts(text.decode())
        self._validator = self._make_validator(self.document)

    def find_errors(self, data: Any) -> list[str]:
        """Return why data does not fit the schema; empty if it does."""
        if self._validator.is_valid(data):
            return []
        errors = islice(self._validator.iter_errors(data), MAX_ERRORS)
        return [error.message[:MAX_ERROR_CHARS] for error in errors]

    def fits(self, name: str, value: Any) -> bool:
        """Return whether a value fits a property."""
        return self._property_validators[name].is_valid(value)

    @cached_property
    def _property_validators(self) -> dict[str, Draft202012Validator]:
        defs = {"$defs": self.document["$defs"]} if self.document.get("$defs") else {}
        parts = {name: part if isinstance(part, dict) else {} for name, part in self.properties.items()}
        return {name: self._make_validator({**part, **defs}) for name, part in parts.items()}

    def _make_validator(self, schema: dict[str, Any]) -> Draft202012Validator:
        from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

        options = RegexOptions(size_limit=MAX_PATTERN_BYTES, dfa_size_limit=MAX_PATTERN_BYTES)
        try:
            # The checks of the agents' own answers: nothing is fetched, nothing backtracks, a time needs no zone.
            return Draft202012Validator(
                schema, offline=True, validate_formats=True, formats={"time": _is_time}, pattern_options=options
            )
        except (ValidationError, ValueError) as error:
            reason = str(error).partition("\n")[0][:MAX_ERROR_CHARS]
            raise InvalidAgentError(f"The schema of the agent {self.agent} cannot be used: {reason}") from error


def _is_time(value: str) -> bool:
    try:
        time.fromisoformat(value.upper())
    except ValueError:
        return False
    return True
