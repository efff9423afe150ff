"""Ingested files."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from rem.models.entity import Entity
from rem.models.field_types import Label


class ProcessingStatus(StrEnum):
    """The state of the ingestion of a file."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"


class File(Entity, table="files", summary="uri", text="content"):
    """An ingested file. Its text is stored in resources; LOOKUP adds it to the row as `content`."""

    name: Label
    uri: str | None = None
    mime_type: str | None = None
    size_bytes: int | None = Field(default=None, ge=0, lt=2**63)
    checksum: str | None = None
    processing_status: ProcessingStatus = ProcessingStatus.PENDING
