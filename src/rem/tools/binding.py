"""Declare a tool once and offer the same function to two callers: MCP clients and agents."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_type_hints

from rem.audit.entry import note_tool
from rem.context import agent_context_scope
from rem.errors import InvalidInputError, NotFoundError, RemError
from rem.tools.env import ToolEnv
from rem.tools.progress import announce_long_call

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_ai import RunContext, Tool

ToolFunction: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
"""`async def tool(env: ToolEnv, …)`: a model writes all arguments except `env`."""
EnvSource: TypeAlias = Callable[[], "ToolEnv | Awaitable[ToolEnv]"]
F = TypeVar("F", bound=ToolFunction)

CORRECTABLE_ERRORS = (InvalidInputError, NotFoundError)
"""Errors that a model can correct itself: a query that it wrote, a key that it named."""
MAX_DESCRIBED_ERRORS = 5
_TRAITS_ATTRIBUTE = "tool_traits"


@dataclass(frozen=True, slots=True)
class ToolTraits:
    """Metadata of a tool. MCP clients use it to decide whether to ask the user before a call."""

    is_read_only: bool = False
    """A call changes nothing."""
    is_destructive: bool = False
    """A call may overwrite stored data."""
    is_open_world: bool = False
    """A call may have effects outside of the memory."""


def tool(*, read_only: bool = False, destructive: bool = False, open_world: bool = False) -> Callable[[F], F]:
    """Declare the decorated function as a tool with these traits."""
    traits = ToolTraits(read_only, destructive, open_world)

    def declare(function: F) -> F:
        setattr(function, _TRAITS_ATTRIBUTE, traits)
        return function

    return declare


def get_traits(function: ToolFunction) -> ToolTraits:
    """Return the traits that `@tool` declared for `function`."""
    traits: ToolTraits = getattr(function, _TRAITS_ATTRIBUTE)
    return traits


def bind_tool(
    function: ToolFunction,
    env_of: EnvSource,
    as_error: Callable[[RemError], Exception] | None = None,
) -> ToolFunction:
    """Return `function` without its parameter `env`; signature, annotations and docstring are kept.

    Each call gets its environment from `env_of`. `as_error` converts a RemError into the exception of the caller's
    protocol; without it the RemError is raised.
    """
    hints, parameters = _get_model_parameters(function)

    async def call(**arguments: Any) -> Any:
        try:
            provided = env_of()
            env = provided if isinstance(provided, ToolEnv) else await provided
            _note_call(function)
            with agent_context_scope(env.context):
                return await function(env, **arguments)
        except RemError as error:
            if as_error is None:
                raise
            raise as_error(error) from error

    return _copy_signature(call, function, hints, parameters)


def make_agent_tool(
    function: ToolFunction,
    *,
    env_of: Callable[[RunContext[Any]], ToolEnv] | None = None,
    description: str | None = None,
    max_retries: int | None = None,
) -> Tool[Any]:
    """Return `function` as a pydantic-ai tool. Its environment is the run's `deps`, or what `env_of` makes of them.

    CORRECTABLE_ERRORS go back to the model as a retry; any other RemError becomes a result with `"status": "error"`.
    """
    from pydantic_ai import ModelRetry, RunContext, Tool

    hints, parameters = _get_model_parameters(function)

    async def call(ctx: RunContext[Any], **arguments: Any) -> Any:
        run_env: ToolEnv = ctx.deps if env_of is None else env_of(ctx)
        _note_call(function)
        try:
            async with announce_long_call(run_env, function.__name__) as env:
                with agent_context_scope(env.context):
                    return await function(env, **arguments)
        except CORRECTABLE_ERRORS as error:
            raise ModelRetry(str(error)) from error
        except RemError as error:
            return {"status": "error", "error": str(error)}

    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=RunContext[Any])
    tool_function = _copy_signature(call, function, {"ctx": RunContext[Any], **hints}, [context, *parameters])
    # The model gets the full docstring: by default the library removes parts that look like sections.
    text = description or inspect.getdoc(function)
    return Tool(tool_function, takes_ctx=True, name=function.__name__, description=text, max_retries=max_retries)


def _note_call(function: ToolFunction) -> None:
    traits: ToolTraits = getattr(function, _TRAITS_ATTRIBUTE, ToolTraits(is_read_only=True))
    note_tool(function.__name__, is_read_only=traits.is_read_only)


def describe_validation_error(error: ValidationError) -> str:
    """Return the first MAX_DESCRIBED_ERRORS errors as sentences that begin with the name of the field."""
    details = error.errors(include_url=False, include_input=False, include_context=False)
    return " ".join(
        f"{'.'.join(str(part) for part in detail['loc']) or 'value'}: {detail['msg'].removeprefix('Value error, ')}."
        for detail in details[:MAX_DESCRIBED_ERRORS]
    )


def _get_model_parameters(function: ToolFunction) -> tuple[dict[str, Any], list[inspect.Parameter]]:
    """Return the resolved annotations and the parameters of `function`, both without `env`."""
    hints = get_type_hints(function, include_extras=True)
    env, *others = inspect.signature(function).parameters.values()
    hints.pop(env.name)
    return hints, [parameter.replace(annotation=hints[parameter.name]) for parameter in others]


def _copy_signature(
    call: ToolFunction, function: ToolFunction, hints: dict[str, Any], parameters: list[inspect.Parameter]
) -> ToolFunction:
    call.__name__ = function.__name__
    call.__qualname__ = function.__qualname__
    call.__module__ = function.__module__
    call.__doc__ = function.__doc__
    call.__annotations__ = hints
    call.__signature__ = inspect.Signature(parameters, return_annotation=hints["return"])  # type: ignore[attr-defined]
    return call
