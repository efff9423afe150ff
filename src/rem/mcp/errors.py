"""How REM's errors reach an MCP client: with what to do next, and without anything else."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from fastmcp.exceptions import NotFoundError as UnknownResourceError
from fastmcp.exceptions import ResourceError, ToolError, ValidationError
from fastmcp.server.middleware import Middleware
from pydantic import ValidationError as PydanticValidationError

from rem.errors import NotFoundError, RemError
from rem.tools.notes import describe_validation_error

if TYPE_CHECKING:
    from fastmcp.server.middleware import CallNext, MiddlewareContext


class _MissingPageError(ResourceError):
    """The page is not there, or is another's."""


def to_tool_error(error: RemError) -> Exception:
    """The error of a tool. Its message is meant for the caller, so it is not worth a line in the log."""
    return ToolError(str(error), log_level=logging.DEBUG)


def to_resource_error(error: RemError) -> Exception:
    """The error of a resource; what belongs to someone else is as missing as what does not exist."""
    kind = _MissingPageError if isinstance(error, NotFoundError) else ResourceError
    return kind(str(error), log_level=logging.DEBUG)


class ErrorMiddleware(Middleware):
    """Wrong arguments are told field by field, a missing page as the protocol says it."""

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Run a tool."""
        try:
            return await call_next(context)
        except ValidationError as error:
            cause = error.__cause__
            if not isinstance(cause, PydanticValidationError):
                raise
            raise ToolError(
                f"The arguments of {context.message.name} are not valid. {describe_validation_error(cause)}",
                log_level=logging.DEBUG,
            ) from error

    async def on_read_resource(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Read a resource."""
        try:
            return await call_next(context)
        except _MissingPageError as error:
            raise UnknownResourceError(str(error)) from error
