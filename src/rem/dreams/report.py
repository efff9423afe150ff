"""Report: says in words what a dream run has learnt, and what it has dropped and why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.dreams.profiles.draft import PROFILE_PREFIX
from rem.models.message import MessageKind
from rem.text import collapse_spaces

if TYPE_CHECKING:
    from rem.db.store import Store

MAX_LINES = 12
MAX_LINE_CHARS = 160
MAX_STATEMENTS = 400
"""Statements of a run that are read. A run that derives more gets a report of the newest."""
_DATE = re.compile(r"^\d{4}-\d\d-\d\d: ")
"""Before each line of an entity's text."""
_KIND_NAMES = {
    MessageKind.QUESTION: ("question", "questions"),
    MessageKind.COMMAND: ("command", "commands"),
    MessageKind.SMALL_TALK: ("greeting or thanks", "greetings and thanks"),
    MessageKind.QUOTATION: ("quotation", "quotations"),
}
_LIST_FIELDS = {
    PROFILE_PREFIX + "about": "You: {}",
    PROFILE_PREFIX + "preferences": 'You want: "{}"',
    "interests": "You come back to {}",
    PROFILE_PREFIX + "current_projects": "You mentioned {}",
}
"""Sentences for the entries of the lists in a profile."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run has learnt and dropped, in words."""

    learnt: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _ChangedStatement:
    """A statement that a run has stored or ended."""

    dream: str
    kind: str
    entity_id: UUID
    name: str
    value: Any
    at: datetime
    is_ended: bool
    is_new: bool
    """Its row is one of this run."""
    is_gone: bool
    """Its row does not exist any more, or not yet."""
    row_name: str
    content: str


async def describe_run(
    store: Store, run_id: UUID, skipped: Mapping[str, int] | None = None, refused: int = 0
) -> RunReport:
    """Return what a run has learnt and dropped.

    `skipped` is the number of messages without a statement that the run has read, by kind, and `refused` the number of
    claims that it left out.
    """
    from rem.dreams.owner_queries import OwnerQueries

    async with store.executor.connection() as connection:
        queries = OwnerQueries(connection, store.scope.tenant_id, store.scope.user_id)
        rows = await queries.fetch_owned("changes_of_run", run_id, MAX_STATEMENTS)
    changes = [_ChangedStatement(*row) for row in rows]
    learnt = [*_tell_profile(changes), *_tell_entities(changes), *_tell_relations(changes), *_tell_moments(changes)]
    dropped = [*_tell_superseded(changes), *_tell_gone(changes)]
    reasons = [_tell_skipped(skipped or {}), _tell_refused(refused)]
    return RunReport(_limit(learnt), [*_limit(dropped), *(reason for reason in reasons if reason)])


def _tell_profile(changes: Sequence[_ChangedStatement]) -> Iterable[str]:
    for name, template in _LIST_FIELDS.items():
        before, after = _find_lists(changes, name)
        for entry in after:
            if entry not in before:
                yield template.format(entry)


def _tell_superseded(changes: Sequence[_ChangedStatement]) -> Iterable[str]:
    before, after = _find_lists(changes, PROFILE_PREFIX + "about")
    for entry in before:
        if entry not in after:
            newer = next((line for line in after if line.split()[:1] == entry.split()[:1] and line not in before), None)
            yield f"You: {entry} (now: {newer})" if newer else f"You: {entry} (no longer stated)"
    for change in changes:
        if change.is_ended and change.kind == "edge" and change.dream == "entities" and not change.is_gone:
            yield f"{change.row_name} {_format_relation(change)} (replaced by something newer)"


def _tell_entities(changes: Sequence[_ChangedStatement]) -> Iterable[str]:
    told: set[UUID] = set()
    for change in changes:
        is_new_entity = change.dream in ("entities", "ontology") and change.kind == "row" and change.is_new
        if is_new_entity and not change.is_ended and not change.is_gone and change.entity_id not in told:
            told.add(change.entity_id)
            about = _DATE.sub("", change.content.partition("\n")[0])
            yield f"{change.row_name}: {about}" if about else change.row_name


def _tell_relations(changes: Sequence[_ChangedStatement]) -> Iterable[str]:
    for change in changes:
        if change.kind == "edge" and change.dream == "entities" and not change.is_ended and not change.is_gone:
            yield f"{change.row_name} {_format_relation(change)} ({_format_day(change.at)})"


def _tell_moments(changes: Sequence[_ChangedStatement]) -> Iterable[str]:
    for change in changes:
        if change.dream == "moments" and change.kind == "row" and change.is_new and not change.is_ended:
            yield f"{change.content} ({_format_day(change.at)})"


def _tell_gone(changes: Sequence[_ChangedStatement]) -> Iterable[str]:
    told: set[UUID] = set()
    for change in changes:
        is_row = change.is_ended and change.kind == "row" and change.dream in ("moments", "entities")
        if is_row and change.is_gone and change.entity_id not in told:
            told.add(change.entity_id)
            name = change.value.get("name") or change.name
            yield f"{name} (no statement says it any more)"


def _tell_skipped(skipped: Mapping[str, int]) -> str:
    counts = [(skipped.get(kind, 0), *names) for kind, names in _KIND_NAMES.items()]
    parts = [f"{count} {singular if count == 1 else plural}" for count, singular, plural in counts if count]
    if not parts:
        return ""
    *first, last = parts
    total = sum(count for count, _, _ in counts)
    return f"{', '.join(first)}{' and ' if first else ''}{last} {'is no memory' if total == 1 else 'are no memories'}"


def _tell_refused(count: int) -> str:
    return f"{count} left out, because you deleted or changed {'it' if count == 1 else 'them'}" if count else ""


def _find_lists(changes: Sequence[_ChangedStatement], name: str) -> tuple[list[str], list[str]]:
    """Return the entries of a list in the profile before and after the run, if the run has changed it."""
    before: list[str] = []
    after: list[str] = []
    for change in changes:
        if change.kind == "field" and change.name == name and isinstance(change.value, list):
            (before if change.is_ended else after).extend(map(str, change.value))
    return before, after


def _format_relation(change: _ChangedStatement) -> str:
    return f"{str(change.value.get('rel_type')).replace('_', ' ')} {change.value.get('dst')}"


def _format_day(at: datetime) -> str:
    return f"{at.day} {at:%b %Y}"


def _limit(lines: Sequence[str]) -> list[str]:
    """Return the first lines, each shortened, and how many more there are."""
    distinct = list(dict.fromkeys(_shorten(collapse_spaces(line)) for line in lines))
    more = len(distinct) - MAX_LINES
    return [*distinct[:MAX_LINES], f"and {more} more"] if more > 0 else distinct


def _shorten(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else f"{line[: MAX_LINE_CHARS - 2].rstrip()} …"
