"""Read the text of ingested files back from their chunks or knowledge entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from rem.db.sql import query
from rem.text import find_front_matter

if TYPE_CHECKING:
    from rem.db.store import Store

MAX_FILE_TEXT_CHARS = 200_000
"""Text of one file that LOOKUP returns: about 100 pages."""


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of a file, or its beginning."""

    text: str
    next_key: str | None = None
    """The key of the first chunk that is left out; None if the text is complete."""
    total_chars: int = 0
    """Characters of all chunks."""

    @property
    def hint(self) -> str | None:
        """Return how to get the rest; None if the text is complete."""
        if self.next_key is None:
            return None
        return (
            f"The text has {self.total_chars:,} characters, and the first {len(self.text):,} are shown. "
            f'The rest starts at LOOKUP "{self.next_key}", and the edges `next_part` lead on.'
        )


async def read_file_texts(
    store: Store, file_ids: Sequence[UUID], max_chars: int = MAX_FILE_TEXT_CHARS
) -> dict[UUID, FileText]:
    """Return the texts of the files that the scope sees, by file id. Files without text are left out.

    A text has at most `max_chars` characters, but at least one chunk. It is without the front matter of a note, and
    between two chunks, white space may differ from the file.
    """
    if not file_ids:
        return {}
    scope = store.scope
    parameters = (scope.tenant_id, scope.user_id, list(file_ids), max_chars)
    rows = await store.executor.read(
        lambda connection: connection.fetch(query("query/query", "file_texts"), *parameters)
    )
    parts: dict[UUID, list[str]] = {}
    next_keys: dict[UUID, str] = {}
    totals: dict[UUID, int] = {}
    for file_id, key, content, gap, total, _ in rows:
        totals[file_id] = total
        if content is None:
            next_keys[file_id] = key
        else:
            texts = parts.setdefault(file_id, [])
            texts.append(_fill_gap(gap) + content if texts else _remove_front_matter(content))
    return {
        file_id: FileText("".join(texts), next_keys.get(file_id), totals[file_id]) for file_id, texts in parts.items()
    }


def _remove_front_matter(text: str) -> str:
    """Return the text of a note without its front matter, which is in the metadata of the file."""
    match = find_front_matter(text)
    return text if match is None or not text[match.end() :].strip() else text[match.end() :].lstrip("\r\n")


def _fill_gap(gap: int | None) -> str:
    """Return white space for the number of characters between two chunks, which are not stored."""
    return "\n" * min(gap, 2) if gap is not None and gap >= 0 else "\n\n"
