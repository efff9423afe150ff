"""Extraction: what an agent finds in a document, by a language model in portions, or as the document states it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rem.dreaming.extraction_model import digest_texts, fence_text
from rem.dreaming.ontology.document import MAX_DOCUMENT_CHARS
from rem.dreaming.ontology.stated_fields import read_stated_fields
from rem.dreaming.run import ModelBudgetSpentError
from rem.dreaming.text.secrets import contains_secret, mask_secrets
from rem.errors import ModelError
from rem.ingest.json_values import replace_unstorable

if TYPE_CHECKING:
    from rem.dreaming.ontology.document import OntologyDocument
    from rem.dreaming.ontology.schema import ExtractionSchema
    from rem.dreaming.run import DreamRun

_PORTION = 24_000
_STATED, _BY_MODEL = 0.6, 0.8
_WHEN_CUT = 0.8
MAX_CONTENT_CHARS = 20_000
_DEEPEST = 10


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found."""

    data: dict[str, Any]
    confidence: float
    method: str
    """`model`, or `document` if it states it itself."""
    portions: int = 1
    is_cut: bool = False
    """Whether a part of the document was not read."""
    at: datetime | None = None
    """The version of the document that it was found in; None for the present one."""


@dataclass(frozen=True, slots=True)
class MissingFields:
    """Why there is nothing."""

    names: tuple[str, ...]


def compute_version(document: OntologyDocument, schema: ExtractionSchema) -> int:
    """A number for what is read and what is looked for: the same, and there is nothing to extract again."""
    return digest_texts(schema.agent, str(schema.digest), str(document.is_cut), document.text)


def extract_stated(document: OntologyDocument, schema: ExtractionSchema) -> Extraction | MissingFields:
    """What the document states itself; what is missing, if that is not all that has to be there."""
    data = _remove_secrets(read_stated_fields(document.text[:MAX_DOCUMENT_CHARS], document.mime_type, schema))
    missing = tuple(name for name in schema.required if name not in data)
    if missing or not data:
        return MissingFields(missing)
    problems = schema.find_errors(data)
    if problems:
        return MissingFields(tuple(problems))
    return Extraction(data, _STATED, "document", is_cut=document.is_cut)


async def extract_with_model(night: DreamRun, document: OntologyDocument, schema: ExtractionSchema) -> Extraction:
    """What the agent makes of the document. A long one is read in portions, as many as there are calls for."""
    portions = split_into_portions(mask_secrets(document.text[:MAX_DOCUMENT_CHARS]))
    affordable = night.budget.left
    if affordable < len(portions) and (affordable < night.settings.max_model_calls or affordable == 0):
        # Another night has all of its calls for it.
        raise ModelBudgetSpentError
    read = portions[:affordable]
    answers = []
    for number, portion in enumerate(read, 1):
        place = f", part {number} of {len(portions)}" if len(portions) > 1 else ""
        what = f"a document ({document.key}{place})"
        answers.append(await night.ask_model(schema.agent, fence_text(what, portion)))
    data = _merge_answers(answers, schema)
    is_cut = document.is_cut or len(read) < len(portions)
    return Extraction(data, _confidence(data) * (_WHEN_CUT if is_cut else 1.0), "model", len(read), is_cut)


def split_into_portions(text: str) -> list[str]:
    """The text in pieces, cut where a paragraph or a line ends if one does; together they are the text."""
    portions = []
    start = 0
    while len(text) - start > _PORTION:
        end = next(
            (
                place + len(sign)
                for sign in ("\n\n", "\n", " ")
                if (place := text.rfind(sign, start + _PORTION // 2, start + _PORTION)) >= 0
            ),
            start + _PORTION,
        )
        portions.append(text[start:end])
        start = end
    portions.append(text[start:])
    return [portion for portion in portions if portion.strip()]


def _remove_secrets(data: Mapping[str, Any]) -> dict[str, Any]:
    """Only what hands over no credential, at any depth."""
    kept = {name: _remove_secrets(value) if isinstance(value, dict) else value for name, value in data.items()}
    return {
        name: value for name, value in kept.items() if not contains_secret("\n".join(_format_lines({name: value}, 0)))
    }


def _merge_answers(answers: Sequence[dict[str, Any]], schema: ExtractionSchema) -> dict[str, Any]:
    """The answers as one that fits; that of the first portion if they do not go together."""
    if not answers:
        raise ModelError("The document has no text.")
    merged: dict[str, Any] = {}
    for answer in answers:
        merged = _merge_values(merged, _to_storable(answer))
    for data in (merged, *map(_to_storable, answers)):
        if not schema.find_errors(data):
            return dict(data)
    raise ModelError(f"What the agent {schema.agent} found does not fit its schema: {schema.find_errors(merged)[0]}")


def _merge_values(first: Any, second: Any) -> Any:
    """Both together: objects by name, lists one behind the other, of anything else the first that says something."""
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
    """What the database can hold."""
    if isinstance(value, dict):
        return {replace_unstorable(str(name)): _to_storable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_to_storable(item) for item in value]
    return replace_unstorable(value) if isinstance(value, str) else value


def _confidence(data: Mapping[str, Any]) -> float:
    for name in ("confidence", "confidence_score"):
        value = data.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
    return _BY_MODEL


def format_as_text(name: str, data: Mapping[str, Any]) -> str:
    """What was found, for people and for the search."""
    text = "\n".join([name, *_format_lines(data, 0)])
    return text if len(text) <= MAX_CONTENT_CHARS else f"{text[: MAX_CONTENT_CHARS - 1]}…"


def _format_lines(data: Mapping[str, Any], depth: int) -> list[str]:
    indent = "  " * depth
    lines = []
    for name, value in data.items():
        label = f"{indent}{str(name).replace('_', ' ').strip().capitalize()}:"
        if value is None or value in ("", [], {}):
            continue
        if isinstance(value, dict) and depth < _DEEPEST:
            lines += [label, *_format_lines(value, depth + 1)]
        elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value) and depth < _DEEPEST:
            lines.append(label)
            for item in value:
                inner = (
                    _format_lines(item, depth + 1) if isinstance(item, dict) else [f"{indent}  {_format_value(item)}"]
                )
                lines += [
                    f"{indent}- {line.removeprefix(indent).lstrip()}" if not at else line
                    for at, line in enumerate(inner)
                ]
        else:
            lines.append(f"{label} {_format_value(value)}")
    return lines


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_format_value(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(str(value).split())
