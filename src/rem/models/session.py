"""Sessions: stored chats, and the users they are shared with."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field

from rem.errors import SessionNameError
from rem.models.entity import Entity
from rem.models.field_types import JsonObject, Label

MAX_PROMPT_CHARS = 100_000
_IGNORED_IN_KEYS = re.compile(r"[\s_\u00AD\u200B\u2060\uFEFF]")


def check_session_name(name: str) -> str:
    """Return `name`. Raise SessionNameError if it, or the key that it gets, would be read as the id of a session."""
    try:
        UUID(_IGNORED_IN_KEYS.sub("", unicodedata.normalize("NFKC", name)))
    except ValueError:
        return name
    raise SessionNameError


SessionName = Annotated[Label, AfterValidator(check_session_name)]


class Session(
    Entity,
    table="sessions",
    key_fields=("name", "id"),
    key_expression="rem.rem_key(coalesce(name, id::text))",
    summary="description",
    search=("description",),
):
    """A stored chat. It always has an owner. Deleting it deletes its messages."""

    name: SessionName | None = None
    mode: str = "normal"
    description: str | None = None
    agent_schema: str | None = None
    message_count: int = Field(default=0, ge=0, lt=2**31)
    total_tokens: int = Field(default=0, ge=0, lt=2**63)
    settings: JsonObject = Field(default_factory=dict)
    system_prompt: str | None = Field(default=None, max_length=MAX_PROMPT_CHARS)
    """Instructions for every turn of the session, in addition to those of the agent."""


class SharedSession(Entity, table="shared_sessions", key_fields=("id",), key_expression="id::text"):
    """One user's permission to read another's session."""

    session_id: UUID
    owner_user_id: str = Field(min_length=1, max_length=255)
    shared_with_user_id: str = Field(min_length=1, max_length=255)
