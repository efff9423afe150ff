"""A title for the conversation that a tool is called in."""

from __future__ import annotations

from uuid import UUID

from loguru import logger

from rem.errors import ConflictError, NotFoundError
from rem.models import Session
from rem.tools.env import ToolEnv


async def name_session(env: ToolEnv, name: str) -> None:
    """Name the caller's conversation, if it is stored and has no name yet: one that a person gave it stays."""
    if env.memory is None or env.context.session_id is None:
        return

    def rename(session: Session) -> None:
        session.name = session.name or name

    store = env.rem.store(env.scope)
    try:
        await store.modify(Session, UUID(env.context.session_id), rename)
    except (NotFoundError, ConflictError) as error:
        # It is a title: the note that it came with matters more, and another conversation may have it.
        logger.debug("The session keeps its name: {}", error)
