"""The base class of all groups of settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

DELIMITER = "__"
"""Joins the names of a group and a setting in the environment."""


class SettingsGroup(BaseModel):
    """Settings with a common prefix. An unknown name is an error, because a typo would silently mean the default."""

    model_config = ConfigDict(extra="forbid")


def get_group_class(field: FieldInfo) -> type[BaseModel] | None:
    """Return the class of a group of settings, or None if the field is a single setting."""
    annotation = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
