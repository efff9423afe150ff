"""ExtractionSchema: what an agent is to find in a document, and whether it was found."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import time
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from rem.db.sql import query
from rem.dreaming.extraction_model import digest_texts
from rem.errors import AgentNotFoundError, InvalidAgentError

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

    from rem.context import Scope
    from rem.db.store import Store

_ADDRESS = "rem://agents/"
MAX_SCHEMA_BYTES = 64 * 1024
_LARGEST_PATTERN = 128 * 1024
MAX_ERRORS = 5
MAX_ERROR_CHARS = 200
_UNCHECKED = ("$ref", "$dynamicRef", "unevaluated")
"""What may go in circles. The catalogue looks for that; nobody has looked at what lies in a table."""
_OUTPUT = ("properties", "required", "additionalProperties", "$defs")


class ExtractionSchema:
    """The JSON schema of what an agent returns. One that cannot be used is an InvalidAgentError."""

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
        self._whole = self._validator(self.document)

    def find_errors(self, data: Any) -> list[str]:
        """What keeps data from being what the agent is to find."""
        if self._whole.is_valid(data):
            return []
        errors = islice(self._whole.iter_errors(data), MAX_ERRORS)
        return [error.message[:MAX_ERROR_CHARS] for error in errors]

    def fits(self, name: str, value: Any) -> bool:
        """Whether a value can be that of a property."""
        return self._parts[name].is_valid(value)

    @cached_property
    def _parts(self) -> dict[str, Draft202012Validator]:
        defs = {"$defs": self.document["$defs"]} if self.document.get("$defs") else {}
        parts = {name: part if isinstance(part, dict) else {} for name, part in self.properties.items()}
        return {name: self._validator({**part, **defs}) for name, part in parts.items()}

    def _validator(self, schema: dict[str, Any]) -> Draft202012Validator:
        from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

        options = RegexOptions(size_limit=_LARGEST_PATTERN, dfa_size_limit=_LARGEST_PATTERN)
        try:
            # As the agents' own answers are checked: nothing is fetched, nothing backtracks, a time needs no zone.
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


class StoredSchemas:
    """What the agents that are kept in the database return, where nobody knows the others."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def schema_of(self, agent: str, scope: Scope) -> dict[str, Any]:
        """The JSON schema of what an agent returns; an error if there is no such agent, or it returns plain text."""
        name = agent.strip().removeprefix(_ADDRESS)
        async with self._store.executor.connection() as connection:
            spec = await connection.fetchval(
                query("dream_ontology", "stored_agent"), scope.tenant_id, scope.user_id, name
            )
        if spec is None:
            raise AgentNotFoundError(f"There is no agent {name!r} in the database: `rem agents save` keeps one there.")
        if not (spec.get("json_schema_extra") or {}).get("structured_output"):
            raise InvalidAgentError(
                f"The agent {name} answers in plain text: set structured_output to true, and give it properties."
            )
        schema = {"type": "object", **{part: spec[part] for part in _OUTPUT if part in spec}}
        if any(word in str(schema) for word in _UNCHECKED):
            raise InvalidAgentError(f"The agent {name} refers to other parts of its schema: write them out.")
        return schema
