"""Convert REM's errors into MCP errors, without internal details."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from fastmcp.exceptions import NotFoundError as UnknownResourceError
from fastmcp.exceptions import ResourceError, ToolError, ValidationError
from fastmcp.server.middleware import Middleware
from pydantic import ValidationError as PydanticValidationError

from rem.errors import NotFoundError, RemError
from rem.tools.binding import describe_validation_error

if TYPE_CHECKING:
    from fastmcp.server.middleware import CallNext, MiddlewareContext


class _PageNotFoundError(ResourceError):
    """The page does not exist, or belongs to another user."""


def to_tool_error(error: RemError) -> Exception:
    """Return the MCP error for a failed tool call. It is not logged: its message is for the caller."""
    return ToolError(str(error), log_level=logging.DEBUG)


def to_resource_error(error: RemError) -> Exception:
    """Return the MCP error for a failed read. A resource of another user is reported as not found."""
    error_class = _PageNotFoundError if isinstance(error, NotFoundError) else ResourceError
    return error_class(str(error), log_level=logging.DEBUG)


class ErrorMiddleware(Middleware):
    """Describes invalid arguments field by field, and reports a missing page with the code of the protocol."""

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Run a tool, and describe invalid arguments."""
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
        """Read a resource, and report a missing page."""
        try:
            return await call_next(context)
        except _PageNotFoundError as error:
            raise UnknownResourceError(str(error)) from error
