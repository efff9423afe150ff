"""Store a statement of the user as a dated note, under a key that people can read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rem.db.conditions import Compare, Where
from rem.db.sql import query
from rem.errors import InvalidInputError
from rem.models import Resource
from rem.models.field_types import check_text
from rem.models.resource import REMEMBERED_ORIGIN
from rem.text import collapse_spaces

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.encryption.sealed_values import Sealer

CATEGORY = "statement"
MAX_STATEMENT_CHARS = 20_000
MAX_TITLE_WORDS = 7
MAX_TITLE_CHARS = 60
_TITLE_ENDS = ' .,;:!?()[]"“”'
"""Signs that a word of a title neither begins nor ends with."""
MAX_SAME_TITLES = 1000
_LEAD = re.compile(
    r"(?:please\s+)?(?:remember|note|keep in mind|do(?:n['’]t| not) forget)\s*(?::|that\b|,)\s*", re.IGNORECASE
)


async def remember(
    store: Store,
    text: str,
    *,
    name: str | None = None,
    tags: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    at: datetime | None = None,
) -> Resource:
    """Store a statement, and return its row. The same statement again returns the row that it has.

    Without a name, the date is a part of its name: a statement is true from then on, and no question is its key.
    """
    statement = store.executor.privacy.mask(_check_statement(text), "statement")
    at = at or datetime.now(UTC)
    async with store.transaction() as transaction:
        async with transaction.executor.connection() as connection:
            await connection.execute(
                query("sessions/sessions", "lock_statements"), store.scope.tenant_id, store.scope.user_id
            )
        own = await _find_same(transaction, statement)
        if own and not metadata and name is None:
            return own[0]
        name = await find_free_name(transaction, name or make_name(statement, at, store.executor.sealer))
        stored = await transaction.upsert(
            Resource(
                name=name,
                content=statement,
                category=CATEGORY,
                timestamp=at,
                origin=REMEMBERED_ORIGIN,
                tags=list(tags or ()),
                metadata=dict(metadata or {}),
            )
        )
        if "\n" in statement:
            # The readers of files are not loaded for one line, which is no table and no list.
            from rem.knowledge.records import store_note_records

            await store_note_records(transaction, stored)
        return stored


def _check_statement(text: str) -> str:
    try:
        check_text(text)
    except ValueError as error:
        raise InvalidInputError(f"The text {error}.") from error
    statement = _LEAD.sub("", text.strip(), count=1) if _LEAD.match(text.strip()) else text.strip()
    if not any(character.isalnum() for character in statement):
        raise InvalidInputError("Say what to remember: the text is empty.")
    if len(statement) > MAX_STATEMENT_CHARS:
        raise InvalidInputError(
            f"The text has {len(statement):,} characters. A statement has at most {MAX_STATEMENT_CHARS:,}: store a "
            "longer text as a file, with rem ingest."
        )
    return statement


async def _find_same(store: Store, statement: str) -> list[Resource]:
    """Return the owner's rows with this statement. The keyed hash of an encrypted one leads to it."""
    sealer = store.executor.sealer
    where: Where = {"origin": REMEMBERED_ORIGIN, "content": statement}
    if sealer is not None and sealer.is_sealing:
        where = Compare("content", "LIKE", f"rem1:%:{_escape(sealer.digest(statement))}:%")
    rows = await store.find(Resource, where)
    return [row for row in rows if row.user_id == store.scope.user_id and row.content == statement]


def _escape(text: str) -> str:
    """Return a text as a pattern of LIKE that matches only itself."""
    return text.replace("_", r"\_")


def make_name(statement: str, at: datetime, sealer: Sealer | None = None) -> str:
    """Return the name of a statement: its date and its first words. Encrypted words are in no name."""
    if sealer is not None and sealer.is_sealing:
        return f"{at:%Y-%m-%d} statement"
    words = [word.strip(_TITLE_ENDS) for word in collapse_spaces(statement).split(" ")]
    title = " ".join([word for word in words if word][:MAX_TITLE_WORDS])[:MAX_TITLE_CHARS].strip()
    return f"{at:%Y-%m-%d} {title if any(character.isalnum() for character in title) else 'statement'}"


async def find_free_name(store: Store, name: str) -> str:
    """Return the name, with a number behind it if other rows have it."""
    for number in range(1, MAX_SAME_TITLES):
        candidate = name if number == 1 else f"{name} ({number})"
        rows = await store.find(Resource, {"key": await store.normalize_key(candidate)}, with_deleted=True, limit=2)
        if not any(row.user_id == store.scope.user_id for row in rows):
            return candidate
    raise InvalidInputError(
        f"There are {MAX_SAME_TITLES - 1} statements that begin like this today: say it differently."
    )
