"""What an editor needs to complete queries: the verbs with their clauses, and the keys that begin with a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rem.db.sql import query as sql
from rem.errors import InvalidInputError
from rem.models.field_types import check_text
from rem.query.grammar import DIRECTION, DIRECTIONS, MODE, MODES, VERBS, Clause
from rem.query.verbs.lookup import require_table

if TYPE_CHECKING:
    from rem.db.store import Store

_CHOICES = {MODE: MODES, DIRECTION: DIRECTIONS}


@dataclass(frozen=True, slots=True)
class ClauseHelp:
    """A clause of a verb."""

    words: tuple[str, ...]
    """The ways to write its keyword, the main one first."""
    expected: str
    """Its value in words."""
    choices: tuple[str, ...]
    """All values, if there are only a few."""


@dataclass(frozen=True, slots=True)
class VerbHelp:
    """A verb of the query language."""

    name: str
    operand: str
    expected: str
    """Its operand in words."""
    takes_keys: bool
    clauses: tuple[ClauseHelp, ...]


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key and the table of its entity."""

    key: str
    table: str


def list_verbs() -> list[VerbHelp]:
    """Return the verbs with their clauses."""
    return [
        VerbHelp(verb.name, verb.operand, verb.missing, verb.takes_keys, tuple(map(_describe_clause, verb.clauses)))
        for verb in VERBS.values()
    ]


def _describe_clause(clause: Clause) -> ClauseHelp:
    words = tuple(f"{word} {clause.second_word}".rstrip() for word in clause.words)
    return ClauseHelp(words, clause.expected, _CHOICES.get(clause, ()))


async def find_keys(store: Store, prefix: str, *, table: str | None = None, limit: int = 10) -> list[KnownKey]:
    """Return keys that begin with a text, in alphabetical order. Any spelling of a key will do."""
    try:
        check_text(prefix)
    except ValueError as error:
        raise InvalidInputError(f"The beginning of a key {error}.") from error
    await require_table(store, table)
    parameters = (store.scope.tenant_id, store.scope.user_id, prefix, table, limit)
    rows = await store.executor.read(
        lambda connection: connection.fetch(sql("query/query", "keys_with_prefix"), *parameters)
    )
    return [KnownKey(*row) for row in rows]
