"""Records: the rows of tables, the items of lists and the fields that a text has by its form."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal
from uuid import UUID

from pydantic import Field

from rem.models.entity import Entity
from rem.models.field_types import JsonList


class RecordKind(StrEnum):
    """What a record is in its source."""

    ROW = "row"
    """A row of a table."""
    ITEM = "item"
    """An item of a list."""
    FIELD = "field"
    """A line `key: value`, or a field of the front matter."""


class Record(Entity, table="records", key_fields=("id",), key_expression="id::text", search=("content",)):
    """One row of a table, one item of a list or one field of a text. It goes with the row that it was read from."""

    kind: RecordKind
    caption: str = ""
    """What the table or list is about: the headings above it, and the line that introduces it."""
    headers: JsonList = Field(default_factory=list)
    """The names of the columns, as many as there are values; empty if the table or list has none."""
    values: JsonList = Field(default_factory=list)
    content: str = ""
    """The record as one line, which SEARCH reads: the caption, and each value after its header."""
    checked: bool | None = None
    """Whether the box of a list item is checked. None without a box."""
    block: int = Field(default=0, ge=0, lt=2**31)
    """The number of the table or list in its file, or in its note without a file."""
    ordinal: int = Field(default=0, ge=0, lt=2**31)
    """The place of the record in its table or list."""
    source_table: Literal["resources", "messages"] = "resources"
    source_id: UUID
    """The note, chunk or message that contains the record."""
    file_id: UUID | None = None
    starts: int = Field(default=0, ge=0, lt=2**31)
    """Where the record starts in the text of the file, note or message, in characters."""
    ends: int = Field(default=0, ge=0, lt=2**31)
