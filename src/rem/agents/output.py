"""Structured answers: the schema for the model, and the check that the library does not do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_ai import ModelRetry, StructuredDict

from rem.agents.json_schema import (
    SchemaProblem,
    SchemaTooLargeError,
    answer_problems,
    field_name,
    schema_as_json,
    schema_problems,
    written_out,
)
from rem.errors import InvalidInputError


def output_type(name: str, output_schema: Mapping[str, Any]) -> Any:
    """What pydantic-ai takes as `output_type` for answers of a JSON schema; an error if it is none.

    The library shows the schema to the model and takes whatever comes back, so `validate_output` has to be the
    agent's output validator.
    """
    problems = schema_problems(dict(output_schema))
    if problems:
        raise _refused(problems)
    title = "".join(word.capitalize() for word in name.split("-"))
    # The library writes references out as well, but not all of them.
    return StructuredDict(written_out(output_schema), name=f"{title}Output", description="The answer.")


def checked_size(output_schema: Mapping[str, Any]) -> bytes:
    """A schema as JSON, before it is looked at any closer; an error if it is too long or cannot be JSON."""
    try:
        return schema_as_json(output_schema)
    except SchemaTooLargeError as error:
        raise _refused([SchemaProblem((), str(error))]) from error


def validate_output(output_schema: Mapping[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """The answer, if it fits the schema; else a ModelRetry that tells the model what to mend."""
    problems = answer_problems(output_schema, data)
    if problems:
        raise ModelRetry(f"The answer does not fit its schema. {describe(problems)} Answer again with these mended.")
    return data


def describe(problems: list[SchemaProblem]) -> str:
    """The problems as sentences."""
    return " ".join(f"{field_name(problem.path) or 'As a whole'}: {problem.message}." for problem in problems)


def _refused(problems: list[SchemaProblem]) -> InvalidInputError:
    return InvalidInputError(f"The answer cannot have this schema. {describe(problems)}")
