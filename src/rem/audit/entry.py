"""AuditEntry: one line of the audit log, and the functions that add to the entry of the running request."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from rem.context import DEFAULT_TENANT, parse_uuid
from rem.models.results import Result

MAX_TARGETS = 50
"""Targets of one entry. A query may return a thousand rows."""
MAX_OPERATION_CHARS = 300


class Action(StrEnum):
    """What was done, least important first."""

    READ = "read"
    WRITE = "write"
    LOGIN = "login"
    DELETE = "delete"
    APPROVE = "approve"
    ADMIN = "admin"


SYNCHRONOUS = frozenset((Action.DELETE, Action.APPROVE, Action.ADMIN))
"""Actions whose entry is stored before the caller gets its answer."""


@dataclass(slots=True)
class AuditEntry:
    """Who did what. Rows are named by table and id, never by their content; keys and names are hashed."""

    action: Action
    operation: str
    """The route, the command or the tools, such as `DELETE /api/v1/entities/{table}/{key}`."""
    tenant_id: str = DEFAULT_TENANT
    actor: str | None = None
    """The id of the user; None for an anonymous caller. For commands, the account of the operating system."""
    role: str | None = None
    via: str = "library"
    """`http`, `mcp`, `cli` or `library`."""
    method: str | None = None
    """How the caller proved who it is."""
    credential_id: str | None = None
    subject: str | None = None
    """The id of another user whom the action is about."""
    status: int | None = None
    client: str | None = None
    """The network address of the caller."""
    request_id: str | None = None
    targets: list[dict[str, str]] = field(default_factory=list)
    more_targets: int = 0
    """Rows beyond MAX_TARGETS."""
    tools: set[str] = field(default_factory=set)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    id: UUID = field(default_factory=uuid4)

    def add_target(self, table: str, row: UUID | str | None = None) -> None:
        """Add a row by its id, or by the hash of its key; without a row, the table."""
        target = {"table": table}
        if isinstance(row, UUID) or (row is not None and parse_uuid(row) is not None):
            target["id"] = str(row)
        elif row is not None:
            target["hash"] = hash_key(self.tenant_id, row)
        if target in self.targets:
            return
        if len(self.targets) < MAX_TARGETS:
            self.targets.append(target)
        else:
            self.more_targets += 1

    def as_record(self) -> dict[str, Any]:
        """Return the columns of the table."""
        operation = f"{self.operation} {','.join(sorted(self.tools))}" if self.tools else self.operation
        targets: list[Mapping[str, Any]] = [*self.targets]
        if self.more_targets:
            targets.append({"more": self.more_targets})
        return {
            "tenant_id": self.tenant_id,
            "at": self.at.isoformat(),
            "id": str(self.id),
            "actor": self.actor,
            "subject": self.subject,
            "role": self.role,
            "via": self.via,
            "method": self.method,
            "credential_id": self.credential_id,
            "action": self.action.value,
            "operation": operation[:MAX_OPERATION_CHARS],
            "status": self.status,
            "targets": targets,
            "client": self.client,
            "request_id": self.request_id,
        }


def hash_key(tenant_id: str, key: str) -> str:
    """Return a hash of a key that tells whether two entries name the same one, and does not show it."""
    return hashlib.sha256(f"{tenant_id}\n{key.strip().lower()}".encode()).hexdigest()[:24]


_current: ContextVar[AuditEntry | None] = ContextVar("current_audit_entry", default=None)


@contextmanager
def audit_scope(entry: AuditEntry) -> Iterator[AuditEntry]:
    """Make an entry the current one inside of the block."""
    token = _current.set(entry)
    try:
        yield entry
    finally:
        _current.reset(token)


def get_current_entry() -> AuditEntry | None:
    """Return the entry of the running request; None if it is not audited."""
    return _current.get()


def note_row(table: str, row: UUID | str) -> None:
    """Add a row to the entry of the running request, if there is one."""
    entry = _current.get()
    if entry is not None:
        entry.add_target(table, row)


def note_actor(user_id: str, tenant_id: str) -> None:
    """Name the user who has just logged in: when the running request began, nobody was known."""
    entry = _current.get()
    if entry is not None:
        entry.actor, entry.tenant_id = user_id, tenant_id


def note_action(action: Action) -> None:
    """Raise the action of the running request: a request that also deletes is a deletion."""
    entry = _current.get()
    if entry is not None and list(Action).index(action) > list(Action).index(entry.action):
        entry.action = action


def note_tool(name: str, *, is_read_only: bool) -> None:
    """Add a tool that the running request has called."""
    entry = _current.get()
    if entry is not None:
        entry.tools.add(name)
        if not is_read_only:
            note_action(Action.WRITE)


def note_results(result: Result) -> None:
    """Add the rows that a query has returned. Rows of the SQL verb have no table, so only the verb is noted."""
    entry = _current.get()
    if entry is None:
        return
    entry.tools.add(result.verb)
    for hit in result.hits:
        entry.add_target(hit.table, hit.id)
