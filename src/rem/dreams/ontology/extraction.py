"""Extraction: extracts data from a document for a schema, by a language model or from values that it states itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rem.dreams.extraction_model import digest_texts, fence_text
from rem.dreams.ontology.document import MAX_DOCUMENT_CHARS
from rem.dreams.ontology.stated_fields import read_stated_fields
from rem.dreams.run import ModelBudgetSpentError
from rem.dreams.text.secrets import contains_secret, mask_secrets
from rem.errors import ModelError
from rem.text import clean_text, collapse_spaces

if TYPE_CHECKING:
    from rem.dreams.ontology.document import OntologyDocument
    from rem.dreams.ontology.schema import ExtractionSchema
    from rem.dreams.run import DreamRun

MAX_PORTION_CHARS = 24_000
"""Characters of a document that a model reads at once."""
STATED_CONFIDENCE = 0.6
MODEL_CONFIDENCE = 0.8
"""Unless the model gives its own."""
CUT_CONFIDENCE_FACTOR = 0.8
"""If only the beginning of the document was read."""
MAX_CONTENT_CHARS = 20_000
MAX_TEXT_DEPTH = 10
"""Levels of nested data that are written as indented lines."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """Data that was extracted from a document."""

    data: dict[str, Any]
    confidence: float
    method: str
    """`model`, or `document` if the document states the values itself."""
    portions: int = 1
    is_cut: bool = False
    """Only the beginning of the document was read."""
    at: datetime | None = None
    """Version of the document that it was extracted from; None for the current one."""


@dataclass(frozen=True, slots=True)
class MissingFields:
    """Required fields that the document does not state, or errors of those that it states."""

    names: tuple[str, ...]


def compute_version(document: OntologyDocument, schema: ExtractionSchema) -> int:
    """Return a digest of the document's text and the schema. While it is the same, an extraction can be reused."""
    return digest_texts(schema.agent, str(schema.digest), str(document.is_cut), document.text)


def extract_stated(document: OntologyDocument, schema: ExtractionSchema) -> Extraction | MissingFields:
    """Return the values that the document states itself, or the missing fields if they do not fit the schema."""
    stated = read_stated_fields(document.text[:MAX_DOCUMENT_CHARS], document.mime_type, schema)
    data = _remove_secrets(stated)
    missing = tuple(name for name in schema.required if name not in data)
    if missing or not data:
        return MissingFields(missing)
    errors = schema.find_errors(data)
    if errors:
        return MissingFields(tuple(errors))
    return Extraction(data, STATED_CONFIDENCE, "document", is_cut=document.is_cut)


async def extract_with_model(run: DreamRun, document: OntologyDocument, schema: ExtractionSchema) -> Extraction:
    """Return the data that the agent extracts. A long document is read in portions, as many as there are calls for.

    Raise ModelBudgetSpentError if a run with its full budget could read more of the document.
    """
    portions = split_into_portions(mask_secrets(document.text[:MAX_DOCUMENT_CHARS]))
    calls_left = run.budget.left
    if calls_left < len(portions) and (calls_left < run.settings.max_model_calls or calls_left == 0):
        raise ModelBudgetSpentError
    read = portions[:calls_left]
    answers = []
    for number, portion in enumerate(read, 1):
        position = f", part {number} of {len(portions)}" if len(portions) > 1 else ""
        description = f"a document ({document.key}{position})"
        answers.append(await run.ask_model(schema.agent, fence_text(description, portion)))
    data = _merge_answers(answers, schema)
    is_cut = document.is_cut or len(read) < len(portions)
    confidence = _get_confidence(data) * (CUT_CONFIDENCE_FACTOR if is_cut else 1.0)
    return Extraction(data, confidence, "model", len(read), is_cut)


def split_into_portions(text: str) -> list[str]:
    """Return the text in portions, cut at the end of a paragraph, a line or a word if there is one."""
    portions = []
    start = 0
    while len(text) - start > MAX_PORTION_CHARS:
        end = next(
            (
                offset + len(separator)
                for separator in ("\n\n", "\n", " ")
                if (offset := text.rfind(separator, start + MAX_PORTION_CHARS // 2, start + MAX_PORTION_CHARS)) >= 0
            ),
            start + MAX_PORTION_CHARS,
        )
        portions.append(text[start:end])
        start = end
    portions.append(text[start:])
    return [portion for portion in portions if portion.strip()]


def _remove_secrets(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data without values that contain a credential, at any depth."""
    kept = {name: _remove_secrets(value) if isinstance(value, dict) else value for name, value in data.items()}
    return {
        name: value for name, value in kept.items() if not contains_secret("\n".join(_format_lines({name: value}, 0)))
    }


def _merge_answers(answers: Sequence[dict[str, Any]], schema: ExtractionSchema) -> dict[str, Any]:
    """Return the merged answers or, if they do not fit the schema, the first answer that does."""
    if not answers:
        raise ModelError("The document has no text.")
    merged: dict[str, Any] = {}
    for answer in answers:
        merged = _merge_values(merged, _to_storable(answer))
    for data in (merged, *map(_to_storable, answers)):
        if not schema.find_errors(data):
            return dict(data)
    raise ModelError(
        f"The data that the agent {schema.agent} extracted does not fit its schema: {schema.find_errors(merged)[0]}"
    )


def _merge_values(first: Any, second: Any) -> Any:
    """Return two values as one: objects by name, lists joined, of anything else the first that is not empty."""
    if isinstance(first, dict) and isinstance(second, dict):
        names = [*first, *(name for name in second if name not in first)]
        return {
            name: _merge_values(first[name], second[name])
            if name in first and name in second
            else first.get(name, second.get(name))
            for name in names
        }
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *(item for item in second if item not in first)]
    if isinstance(first, int | float) and not isinstance(first, bool):
        return first
    return second if first in (None, "", [], {}) else first


def _to_storable(value: Any) -> Any:
    """Return a JSON value with texts that PostgreSQL can store."""
    if isinstance(value, dict):
        return {clean_text(str(name)): _to_storable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_to_storable(item) for item in value]
    return clean_text(value) if isinstance(value, str) else value


def _get_confidence(data: Mapping[str, Any]) -> float:
    for name in ("confidence", "confidence_score"):
        value = data.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
    return MODEL_CONFIDENCE


def format_as_text(name: str, data: Mapping[str, Any]) -> str:
    """Return the data as indented lines, for people and for the search."""
    text = "\n".join([name, *_format_lines(data, 0)])
    return text if len(text) <= MAX_CONTENT_CHARS else f"{text[: MAX_CONTENT_CHARS - 1]}…"


def _format_lines(data: Mapping[str, Any], depth: int) -> list[str]:
    indent = "  " * depth
    lines = []
    for name, value in data.items():
        label = f"{indent}{str(name).replace('_', ' ').strip().capitalize()}:"
        if value is None or value in ("", [], {}):
            continue
        if isinstance(value, dict) and depth < MAX_TEXT_DEPTH:
            lines += [label, *_format_lines(value, depth + 1)]
        elif (
            isinstance(value, list) and any(isinstance(item, dict | list) for item in value) and depth < MAX_TEXT_DEPTH
        ):
            lines.append(label)
            for item in value:
                lines += _format_item(item, depth)
        else:
            lines.append(f"{label} {_format_value(value)}")
    return lines


def _format_item(item: Any, depth: int) -> list[str]:
    """Return an item of a list as lines, the first one with a dash."""
    indent = "  " * depth
    lines = _format_lines(item, depth + 1) if isinstance(item, dict) else [f"{indent}  {_format_value(item)}"]
    return [line if number else f"{indent}- {line.removeprefix(indent).lstrip()}" for number, line in enumerate(lines)]


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_format_value(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return collapse_spaces(str(value))
