"""Users: people that REM knows."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from rem.models.entity import Entity
from rem.models.field_types import Label, UtcDateTime


class User(
    Entity,
    table="users",
    key_fields=("name", "email", "id"),
    summary="summary",
    search=("summary", "role", "interests", "preferred_topics"),
):
    """A person, found by name, e-mail address or id. Without a name, the address is the name."""

    name: Label
    email: str | None = Field(default=None, max_length=320)
    role: str | None = None
    tier: str | None = None
    summary: str = ""
    interests: list[str] = Field(default_factory=list)
    preferred_topics: list[str] = Field(default_factory=list)
    activity_level: str | None = None
    last_active_at: UtcDateTime | None = None

    @model_validator(mode="before")
    @classmethod
    def _use_email_as_name(cls, data: Any) -> Any:
        if isinstance(data, dict) and not data.get("name") and data.get("email"):
            return {**data, "name": data["email"]}
        return data

    @field_validator("email")
    @classmethod
    def _check_email(cls, value: str | None) -> str | None:
        if value is None:
            return None
        local, at, domain = value.strip().rpartition("@")
        if not (local and at and domain) or any(character.isspace() for character in value.strip()):
            raise ValueError("is not an e-mail address")
        return value.strip()
