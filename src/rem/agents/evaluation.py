"""Evaluation: the options of an evaluator beside its rubric, and their check against the rubric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from rem.agents.expressions import Expression, ExpressionError
from rem.agents.json_schema import MAX_PATTERN_CHARS, check_schema
from rem.agents.schema_references import Path
from rem.text import did_you_mean

Method: TypeAlias = Literal["judge", "exact", "numeric", "regex", "json_schema", "retrieval", "latency"]
ScoreName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]

PASS = "pass"  # noqa: S105  # the name of a score
MAX_DERIVED_SCORES = 20
SCORE_TYPES = ("number", "integer", "boolean")
SCORES_OF_METHOD: dict[str, tuple[str, ...]] = {
    "exact": (PASS,),
    "numeric": ("difference", PASS),
    "regex": (PASS,),
    "json_schema": (PASS,),
    "retrieval": ("precision", "recall", "mrr", "ndcg"),
    "latency": ("seconds", PASS),
}
"""The scores of the evaluators in code. Those of a judge are the properties of its rubric."""
LOWER_IS_BETTER_OF_METHOD: dict[str, tuple[str, ...]] = {"numeric": ("difference",), "latency": ("seconds",)}
"""The scores of the evaluators in code that should be low, besides those that an evaluator names."""
_OPTIONS_OF_METHOD: dict[str, tuple[str, ...]] = {
    "judge": (),
    "exact": ("field", "ignore_case"),
    "numeric": ("field", "tolerance", "relative_tolerance"),
    "regex": ("field", "pattern"),
    "json_schema": ("json_schema",),
    "retrieval": ("k",),
    "latency": ("max_seconds",),
}
_COMMON_OPTIONS = ("method", "scores", "lower_is_better")


class Evaluation(BaseModel):
    """The method of an evaluator, and the scores that it derives."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    method: Method = "judge"
    """A language model with the rubric, or a comparison in code."""
    scores: dict[ScoreName, Annotated[str, StringConstraints(min_length=1)]] = Field(
        default_factory=dict, max_length=MAX_DERIVED_SCORES
    )
    """Derived scores by name: an expression over the other scores, such as `0.7 * correctness + 0.3 * style`."""
    lower_is_better: list[ScoreName] = Field(default_factory=list, max_length=MAX_DERIVED_SCORES)
    field: str | None = Field(default=None, min_length=1, max_length=200)
    """The field of an output and a reference to compare. Default: the whole value."""
    ignore_case: bool = False
    tolerance: float = Field(default=0, ge=0)
    relative_tolerance: float = Field(default=0, ge=0)
    pattern: str | None = Field(default=None, min_length=1, max_length=MAX_PATTERN_CHARS)
    """Default: the reference is the pattern."""
    json_schema: dict[str, Any] | None = None
    k: int = Field(default=10, ge=1, le=1000)
    """The number of results that are scored."""
    max_seconds: float = Field(default=10, gt=0)


def list_score_names(properties: Mapping[str, Any]) -> list[str]:
    """Return the properties of a rubric that are scores: numbers and booleans."""
    return [
        name for name, schema in properties.items() if isinstance(schema, dict) and schema.get("type") in SCORE_TYPES
    ]


def find_evaluation_issues(document: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield the path and the message of each error in the evaluation of a document."""
    extra = document.get("json_schema_extra")
    if not isinstance(extra, dict):
        return
    path: Path = ("json_schema_extra", "evaluation")
    options = extra.get("evaluation", {})
    if extra.get("kind") != "evaluator":
        if "evaluation" in extra:
            yield path, "belongs to an evaluator: write kind: evaluator"
        return
    if not isinstance(options, dict):
        return
    method = options.get("method", "judge")
    if method not in _OPTIONS_OF_METHOD:
        return
    allowed = (*_COMMON_OPTIONS, *_OPTIONS_OF_METHOD[method])
    for name in options:
        if name not in allowed and name in Evaluation.model_fields:
            yield (*path, name), f"is not an option of the method {method}"
    yield from _find_pattern_issues(options, path)
    properties = document.get("properties") if isinstance(document.get("properties"), dict) else {}
    if method == "judge":
        names = list_score_names(properties or {})
        if not names:
            yield ("properties",), "needs a score: a property of type number, integer or boolean"
            return
    else:
        names = list(SCORES_OF_METHOD[method])
    required = document.get("required") if method == "judge" else names
    yield from _find_score_issues(options, path, names, list(required or []))


def _find_pattern_issues(options: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, str]]:
    pattern, schema = options.get("pattern"), options.get("json_schema")
    if isinstance(pattern, str):
        issues = check_schema({"type": "object", "properties": {"text": {"type": "string", "pattern": pattern}}})
        for issue in issues[:1]:
            yield (*path, "pattern"), issue.message
    if isinstance(schema, dict):
        for issue in check_schema(schema):
            yield (*path, "json_schema", *issue.path), issue.message
    elif options.get("method") == "json_schema":
        yield (*path, "json_schema"), "is missing: write the JSON schema that an output must match"


def _find_score_issues(
    options: Mapping[str, Any], path: Path, names: list[str], required: list[Any]
) -> Iterator[tuple[Path, str]]:
    """Check the derived scores. An expression may use the scores of the rubric, and other derived scores."""
    scores = options.get("scores")
    derived = scores if isinstance(scores, dict) else {}
    expressions: dict[str, Expression] = {}
    for name, text in derived.items():
        score_path = (*path, "scores", name)
        if name in names:
            yield score_path, "is a score already: choose another name"
        if isinstance(text, str):
            try:
                expressions[name] = Expression(text)
            except ExpressionError as error:
                yield score_path, str(error)
    known = [*names, *derived]
    yield from _find_name_issues(expressions, (*path, "scores"), known, set(names).difference(required))
    lower = options.get("lower_is_better")
    for name in lower if isinstance(lower, list) else ():
        if isinstance(name, str) and name not in known:
            yield (*path, "lower_is_better"), f"there is no score {name!r}.{did_you_mean(name, known)}"


def _find_name_issues(
    expressions: Mapping[str, Expression], path: Path, known: list[str], optional: set[str]
) -> Iterator[tuple[Path, str]]:
    """Check the scores that expressions use."""
    for name, expression in expressions.items():
        for used in expression.names:
            if used not in known:
                yield (*path, name), f"there is no score {used!r}.{did_you_mean(used, known)}"
            elif used in optional:
                yield (*path, name), f"uses {used}: add it to required, so that every judgement has it"
    ordered = sort_derived(expressions)
    for name in expressions:
        if name not in ordered:
            yield (*path, name), "uses itself, maybe through another score"


def sort_derived(expressions: Mapping[str, Expression]) -> list[str]:
    """Return the derived scores in an order in which they can be computed. The database does not keep their order."""
    ordered: list[str] = []
    while True:
        ready = [
            name
            for name, expression in expressions.items()
            if name not in ordered and all(used in ordered or used not in expressions for used in expression.names)
        ]
        if not ready:
            return ordered
        ordered += ready
