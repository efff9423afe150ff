"""The pages that a client reads by address: one table of them, for MCP and for the tool `read_resource`."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from rem.errors import NotFoundError
from rem.tools import agent_pages, memory_pages, schema_pages, status_page
from rem.tools.env import ToolEnv


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """A resource: its address, in which `{name}` stands for an argument, and the function that gives its content."""

    uri: str
    content: Callable[..., Coroutine[Any, Any, Any]]

    @property
    def name(self) -> str:
        """What clients call it."""
        return self.content.__name__


RESOURCE_PAGES: tuple[ResourcePage, ...] = (
    ResourcePage("rem://agents", agent_pages.agents),
    ResourcePage("rem://agents/{name}", agent_pages.agent),
    ResourcePage("rem://schema/entities", schema_pages.entities),
    ResourcePage("rem://schema/query-types", schema_pages.query_types),
    ResourcePage("rem://sessions", memory_pages.sessions),
    ResourcePage("rem://sessions/{id}", memory_pages.session),
    ResourcePage("rem://moments/{page}", memory_pages.moments),
    ResourcePage("rem://moments/key/{key}", memory_pages.moment),
    ResourcePage("rem://status", status_page.status),
    ResourcePage("user://profile/{user_id}", memory_pages.profile),
)


async def read_page(env: ToolEnv, uri: str) -> Any:
    """The content of the page at an address; NotFoundError if there is none that the caller may read."""
    address = uri.strip()
    is_allowed = env.may_read is None or env.may_read(address)
    for page in RESOURCE_PAGES if is_allowed else ():
        arguments = _arguments(page.uri, address)
        if arguments is not None:
            return await page.content(env, **arguments)
    known = ", ".join(page.uri for page in RESOURCE_PAGES)
    raise NotFoundError(f"There is no resource {address[:200]!r}. The resources: {known}.")


def _arguments(template: str, address: str) -> dict[str, str] | None:
    """What stands for the names of a template, if the address is one of its kind."""
    pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(template))
    found = re.fullmatch(pattern, address.rstrip("/"))
    return {name: unquote(value) for name, value in found.groupdict().items()} if found else None
