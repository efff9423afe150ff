"""Declare a tool once and offer the same function to two callers: MCP clients and agents."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_type_hints
from uuid import UUID

import orjson

from rem.approvals.approvals import AlreadyBegunError, Proposal
from rem.audit.entry import note_tool
from rem.context import agent_context_scope
from rem.errors import ForbiddenError, InvalidInputError, NotFoundError, RemError
from rem.models.approval import RiskLevel
from rem.models.field_types import to_json_value
from rem.tools.consent import FROM_CLIENT, CarryOut, ConsentNeeded, ask_consent
from rem.tools.env import ToolEnv
from rem.tools.progress import announce_long_call

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_ai import RunContext, Tool

    from rem.models import Approval

ToolFunction: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
"""`async def tool(env: ToolEnv, …)`: a model writes all arguments except `env`."""
EnvSource: TypeAlias = Callable[[], "ToolEnv | Awaitable[ToolEnv]"]
F = TypeVar("F", bound=ToolFunction)

CORRECTABLE_ERRORS = (InvalidInputError, NotFoundError)
"""Errors that a model can correct itself: a query that it wrote, a key that it named."""
MAX_DESCRIBED_ERRORS = 5
MAX_SHOWN_CHARS = 2000
"""Length of an argument that the user is shown."""
APPROVAL_ID = "approval_id"
"""Metadata of a resumed tool call: the approval."""
PROPOSAL = "proposal"
"""Metadata of a tool call that waits for consent."""
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
    risk: RiskLevel = RiskLevel.REVERSIBLE
    """The damage that a wrong call can do. An irreversible one always waits for the consent of the user."""
    carry_out: CarryOut | None = None
    """Carries out an approved request. A tool that has it asks for consent itself, with a preview of its own."""


def tool(
    *,
    read_only: bool = False,
    destructive: bool = False,
    open_world: bool = False,
    risk: RiskLevel | None = None,
    carry_out: CarryOut | None = None,
) -> Callable[[F], F]:
    """Declare the decorated function as a tool with these traits. Default risk: reversible unless destructive."""
    level = risk or (RiskLevel.REVERSIBLE_WITH_DELAY if destructive else RiskLevel.REVERSIBLE)
    traits = ToolTraits(read_only, destructive, open_world, level, carry_out)

    def declare(function: F) -> F:
        setattr(function, _TRAITS_ATTRIBUTE, traits)
        return function

    return declare


def get_traits(function: ToolFunction) -> ToolTraits:
    """Return the traits that `@tool` declared for `function`; those of a reversible tool if it declared none."""
    traits: ToolTraits = getattr(function, _TRAITS_ATTRIBUTE, ToolTraits())
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
                return await _call_with_consent(function, env, arguments)
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

    CORRECTABLE_ERRORS go back to the model as a retry; any other RemError becomes a result with `"status": "error"`. A
    call that needs the consent of the user ends the run (`ApprovalRequired`, with the proposal in its metadata); the
    resumed run calls the tool again, with the id of the approval in the metadata of the call.
    """
    from pydantic_ai import ApprovalRequired, ModelRetry, RunContext, Tool

    hints, parameters = _get_model_parameters(function)

    async def call(ctx: RunContext[Any], **arguments: Any) -> Any:
        run_env: ToolEnv = ctx.deps if env_of is None else env_of(ctx)
        _note_call(function)
        try:
            async with announce_long_call(run_env, function.__name__) as env:
                with agent_context_scope(env.context):
                    if not ctx.tool_call_approved:
                        return await _call_with_consent(function, env, arguments)
                    approval_id = UUID(ctx.tool_call_metadata[APPROVAL_ID])
                    async with env.rem.for_user(env.scope).approvals.executing(approval_id):
                        return await function(env, **arguments)
        except ConsentNeeded as needed:
            raise ApprovalRequired(metadata={PROPOSAL: needed.proposal}) from needed
        except AlreadyBegunError:
            # Another process carries out the same decision, and its run goes on. This one ends.
            raise
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


def check_arguments(function: ToolFunction, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for a tool, converted. Raise InvalidInputError, which names each error, if they misfit."""
    from pydantic import ConfigDict, ValidationError, create_model

    hints, parameters = _get_model_parameters(function)
    fields: dict[str, Any] = {
        parameter.name: (
            hints[parameter.name],
            ... if parameter.default is inspect.Parameter.empty else parameter.default,
        )
        for parameter in parameters
    }
    model = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
    try:
        checked = model.model_validate(arguments)
    except ValidationError as error:
        raise InvalidInputError(
            f"The arguments of {function.__name__} are not valid. {describe_validation_error(error)}"
        ) from error
    return {name: getattr(checked, name) for name in fields}


def describe_call(function: ToolFunction, arguments: Mapping[str, Any]) -> Proposal:
    """Return a call of a tool as a proposal: what the tool does, and its arguments."""
    description = " ".join((inspect.getdoc(function) or function.__name__).split("\n\n")[0].split())
    try:
        given = to_json_value({name: value for name, value in arguments.items() if value is not None})
    except ValueError as error:
        raise InvalidInputError(f"The arguments cannot be stored for the user to decide: {error}.") from error
    lines = [f"I would like to call `{function.__name__}`: {description}"]
    lines += [f"- {name}: {_format_argument(value)}" for name, value in given.items()]
    return Proposal(
        tool_name=function.__name__,
        parameters=given,
        description=description,
        preview="\n".join(lines),
        risk_level=get_traits(function).risk,
    )


def check_effect(function: ToolFunction, env: ToolEnv) -> str | None:
    """Return why a tool that changes something is skipped; None if it may run.

    Raise ForbiddenError if nothing of the turn is stored.
    """
    if get_traits(function).risk is RiskLevel.REVERSIBLE:
        return None
    if env.context.is_eval:
        # It must not change the memory that it measures.
        return "This is an evaluation, so nothing was stored or changed."
    if env.context.is_transient:
        raise ForbiddenError(
            "Nothing of this turn is stored, so it cannot be done: leave out `store: false`, and log in or name a "
            "session."
        )
    return None


async def _call_with_consent(function: ToolFunction, env: ToolEnv, arguments: dict[str, Any]) -> Any:
    """Call a tool, or ask for the consent of the user first if its risk needs that and it does not ask itself."""
    traits = get_traits(function)
    skipped = check_effect(function, env)
    if skipped is not None:
        return {"status": "skipped", "message": skipped}
    if traits.carry_out is not None or traits.risk not in env.consent:
        return await function(env, **arguments)

    async def carry_out(approval: Approval) -> Any:
        approvals = env.rem.for_user(env.scope).approvals
        recorded = await approvals.approve(approval, by=FROM_CLIENT)
        async with approvals.executing(approval.id):
            return await function(env, **check_arguments(function, recorded))

    return await ask_consent(env, describe_call(function, arguments), carry_out)


def _format_argument(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}… ({len(text):,} characters)"


def describe_validation_error(error: ValidationError) -> str:
    """Return the first MAX_DESCRIBED_ERRORS errors as sentences that begin with the name of the field."""
    details = error.errors(include_url=False, include_input=False, include_context=False)
    return " ".join(
        f"{'.'.join(str(part) for part in detail['loc']) or 'value'}: {detail['msg'].removeprefix('Value error, ')}."
        for detail in details[:MAX_DESCRIBED_ERRORS]
    )


# Each run of an agent asks for all its tools, and an answer takes half a millisecond.
@lru_cache(maxsize=256)
def _get_model_parameters(function: ToolFunction) -> tuple[dict[str, Any], tuple[inspect.Parameter, ...]]:
    """Return the resolved annotations and the parameters of `function`, both without `env`. Do not change them."""
    hints = get_type_hints(function, include_extras=True)
    env, *others = inspect.signature(function).parameters.values()
    hints.pop(env.name)
    return hints, tuple(parameter.replace(annotation=hints[parameter.name]) for parameter in others)


def _copy_signature(
    call: ToolFunction, function: ToolFunction, hints: dict[str, Any], parameters: Sequence[inspect.Parameter]
) -> ToolFunction:
    call.__name__ = function.__name__
    call.__qualname__ = function.__qualname__
    call.__module__ = function.__module__
    call.__doc__ = function.__doc__
    call.__annotations__ = dict(hints)
    call.__signature__ = inspect.Signature(parameters, return_annotation=hints["return"])  # type: ignore[attr-defined]
    return call
