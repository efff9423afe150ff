"""Targets: what an experiment measures. An agent, a query over the memory, or a function of your own."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rem.agents.chat import AgentRequest
from rem.errors import InvalidInputError
from rem.evals.evaluators import CaseOutput
from rem.evals.golden_sets import GoldenCase, hash_json
from rem.models.results import Hit, JsonRow
from rem.query.parser import parse_query

if TYPE_CHECKING:
    from rem.agents.chat import AgentAnswer
    from rem.agents.service import Agents
    from rem.app import Rem
    from rem.context import AgentContext, Scope

TargetFunction: TypeAlias = Callable[[Any], Any | Awaitable[Any]]
"""Takes the input of a case, and returns its output as JSON values."""

INPUT = "{input}"
VERBS = ("LOOKUP", "FUZZY", "SEARCH", "TRAVERSE")
MAX_ROW_TEXT_CHARS = 2_000
_SOURCE_ARGUMENTS = ("sources", "references")


class Target(Protocol):
    """Makes the output of a case."""

    @property
    def description(self) -> dict[str, Any]:
        """What the target is, enough to make it again."""
        ...

    async def prepare(self) -> dict[str, Any]:
        """Return the versions of what makes the outputs. Raise an error if it cannot run at all."""
        ...

    async def run(self, case: GoldenCase) -> CaseOutput:
        """Return the output of a case."""
        ...


@dataclass(frozen=True, slots=True)
class AgentTarget:
    """An agent that answers the input as a message. Nothing is stored, and its tools change nothing."""

    agents: Agents
    context: AgentContext
    agent: str
    model: str | None = None
    seed: int = 0

    @property
    def description(self) -> dict[str, Any]:
        """The agent and the requested model."""
        return {"kind": "agent", "agent": self.agent, "model": self.model}

    async def prepare(self) -> dict[str, Any]:
        """Return the versions of agent and model."""
        schema = await self.agents.catalog.get(self.agent, self.context.scope)
        model = self.agents.resolve_model(self.model or schema.model)
        document = schema.as_document()
        return {
            "model": model.name,
            "agent_version": schema.version,
            "prompt_hash": hash_json(schema.description),
            "schema_hash": hash_json(document),
        }

    async def run(self, case: GoldenCase) -> CaseOutput:
        """Return the structured answer, or the text of the answer."""
        request = AgentRequest(
            context=self.context,
            text=case.text,
            agent=self.agent,
            model=self.model,
            client_history=case.client_history,
            model_settings={"seed": self.seed},
            is_remembered=False,
            is_from_user=False,
        )
        started = perf_counter()
        answer = await self.agents.run(request)
        details = {
            "tool_calls": answer.tool_calls,
            "sources": _list_sources(answer),
            "confidence": answer.confidence,
            "model": answer.model,
            "tokens": answer.usage.total_tokens,
        }
        return CaseOutput(answer.output or answer.text, details, perf_counter() - started)


@dataclass(frozen=True, slots=True)
class QueryTarget:
    """A query in REM's language over the memory of the user. It needs no language model.

    `{input}` stands for the input as a quoted text. The template `{input}` alone runs the input as a query.
    """

    rem: Rem
    scope: Scope
    template: str

    @property
    def description(self) -> dict[str, Any]:
        """The template."""
        return {"kind": "query", "query": self.template}

    async def prepare(self) -> dict[str, Any]:
        """Return the hash of the template. Raise InvalidInputError if it is not a query."""
        if self.template.strip() != INPUT:
            parse_query(fill_template(self.template, "x"))
        return {"prompt_hash": hash_json(self.template)}

    async def run(self, case: GoldenCase) -> CaseOutput:
        """Return the rows, best first."""
        if not isinstance(case.input, str):
            raise InvalidInputError(f"The input of the case {case.id} is not a text, which a query needs.")
        text = fill_template(self.template, case.input)
        started = perf_counter()
        result = await self.rem.for_user(self.scope).query(text)
        seconds = perf_counter() - started
        others = replace(result, hits=[]).list_rows()
        notes = [note.as_json() for note in result.notes]
        return CaseOutput([*map(_shorten_hit, result.hits), *others], {"query": text, "notes": notes}, seconds)


@dataclass(frozen=True, slots=True)
class FunctionTarget:
    """A Python function, for programs that use the library."""

    function: TargetFunction
    name: str

    @property
    def description(self) -> dict[str, Any]:
        """The name of the function."""
        return {"kind": "function", "function": self.name}

    async def prepare(self) -> dict[str, Any]:
        """Return no versions: REM does not know what the function runs."""
        return {}

    async def run(self, case: GoldenCase) -> CaseOutput:
        """Return what the function returns."""
        started = perf_counter()
        value = self.function(case.input)
        if inspect.isawaitable(value):
            value = await value
        return CaseOutput(value, {}, perf_counter() - started)


def make_target(
    description: Mapping[str, Any], rem: Rem, agents: Agents, context: AgentContext, *, seed: int
) -> AgentTarget | QueryTarget:
    """Return the target of a stored run. Raise InvalidInputError if it was a function of a program."""
    match description["kind"]:
        case "agent":
            return AgentTarget(agents, context, description["agent"], description.get("model"), seed)
        case "query":
            return QueryTarget(rem, context.scope, description["query"])
    raise InvalidInputError("This run measures a function of a program: the program must resume it.")


def fill_template(template: str, text: str) -> str:
    """Return the query of an input. The input is quoted, so it cannot add clauses; a verb alone takes it at its end."""
    template = template.strip()
    if template == INPUT:
        return text
    if template.upper() in VERBS:
        template = f"{template} {INPUT}"
    if INPUT not in template:
        raise InvalidInputError(f"The query must contain {INPUT}, such as: SEARCH {INPUT} FROM resources LIMIT 5")
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return template.replace(INPUT, f'"{quoted}"')


def _list_sources(answer: AgentAnswer) -> list[Any]:
    """Return the keys that the agent recorded as its sources."""
    sources: dict[str, None] = {}
    for call in answer.tool_calls:
        for name in _SOURCE_ARGUMENTS if call["name"] == "register_metadata" else ():
            for source in call["args"].get(name) or ():
                sources[str(source)] = None
    return list(sources)


def _shorten_hit(hit: Hit) -> JsonRow:
    """Return what identifies a hit, and the beginning of its text."""
    short = {
        "table": hit.table,
        "key": hit.key,
        "id": hit.id,
        "name": hit.record.get("name"),
        "score": hit.score,
        "rel_type": hit.walk and hit.walk.rel_type,
        "text": hit.text[:MAX_ROW_TEXT_CHARS] or None,
    }
    return {name: value for name, value in short.items() if value is not None}
