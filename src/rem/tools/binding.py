"""One function, two callers: how a tool is offered to MCP clients and to agents."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias, get_type_hints

from rem.context import agent_context_scope
from rem.errors import InvalidInputError, NotFoundError, RemError
from rem.tools.env import ToolEnv

if TYPE_CHECKING:
    from pydantic_ai import RunContext, Tool

ToolFunction: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
"""`async def tool(env: ToolEnv, …)`: what it takes beside `env` is what a model writes."""
EnvSource: TypeAlias = Callable[[], "ToolEnv | Awaitable[ToolEnv]"]

CORRECTABLE_ERRORS = (InvalidInputError, NotFoundError)
"""What a model can put right itself: the query that it wrote, the key that it named."""


def bind_tool(
    function: ToolFunction,
    env_of: EnvSource,
    as_error: Callable[[RemError], Exception] | None = None,
) -> ToolFunction:
    """The function without `env`, which is asked for at each call; its signature, annotations and docstring stay.

    `as_error` says which exception stands for one of REM's errors, where the caller has errors of its own.
    """
    hints, parameters = _beside_env(function)

    async def call(**arguments: Any) -> Any:
        try:
            found = env_of()
            env = found if isinstance(found, ToolEnv) else await found
            with agent_context_scope(env.context):
                return await function(env, **arguments)
        except RemError as error:
            if as_error is None:
                raise
            raise as_error(error) from error

    return _disguised(call, function, hints, parameters)


def make_agent_tool(
    function: ToolFunction,
    *,
    env_of: Callable[[RunContext[Any]], ToolEnv] | None = None,
    description: str | None = None,
    max_retries: int | None = None,
) -> Tool[Any]:
    """The function as a tool of an agent, in the environment that is the run's `deps` or that `env_of` makes of them.

    What the model can correct comes back to it as such; any other error of REM is a result that says so.
    """
    from pydantic_ai import ModelRetry, RunContext, Tool

    hints, parameters = _beside_env(function)

    async def call(ctx: RunContext[Any], **arguments: Any) -> Any:
        env: ToolEnv = ctx.deps if env_of is None else env_of(ctx)
        try:
            with agent_context_scope(env.context):
                return await function(env, **arguments)
        except CORRECTABLE_ERRORS as error:
            raise ModelRetry(str(error)) from error
        except RemError as error:
            return {"status": "error", "error": str(error)}

    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=RunContext[Any])
    tool_function = _disguised(call, function, {"ctx": RunContext[Any], **hints}, [context, *parameters])
    # The whole docstring is for the model; left to itself the library takes what looks like a section out of it.
    text = description or inspect.getdoc(function)
    return Tool(tool_function, takes_ctx=True, name=function.__name__, description=text, max_retries=max_retries)


def _beside_env(function: ToolFunction) -> tuple[dict[str, Any], list[inspect.Parameter]]:
    """The annotations and the parameters that a model fills, with the types themselves instead of their names."""
    hints = get_type_hints(function, include_extras=True)
    env, *others = inspect.signature(function).parameters.values()
    hints.pop(env.name)
    return hints, [parameter.replace(annotation=hints[parameter.name]) for parameter in others]


def _disguised(
    call: ToolFunction, function: ToolFunction, hints: dict[str, Any], parameters: list[inspect.Parameter]
) -> ToolFunction:
    call.__name__ = function.__name__
    call.__qualname__ = function.__qualname__
    call.__module__ = function.__module__
    call.__doc__ = function.__doc__
    call.__annotations__ = hints
    call.__signature__ = inspect.Signature(parameters, return_annotation=hints["return"])  # type: ignore[attr-defined]
    return call
