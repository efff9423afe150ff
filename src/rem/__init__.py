"""REM: Resources, Entities, Moments. A memory for AI agents, on PostgreSQL.

Names are imported when they are first used, so that `import rem` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.context import Scope
    from rem.db.store import Store
    from rem.errors import ConflictError, DeletedError, InvalidInputError, NotFoundError, RemError
    from rem.memory.manager import MemoryManager
    from rem.memory.message import NewMessage
    from rem.models import (
        Approval,
        Document,
        Edge,
        Entity,
        Feedback,
        File,
        Message,
        Moment,
        Ontology,
        OntologyConfig,
        Resource,
        Role,
        Schema,
        Session,
        SharedSession,
        ToolGap,
        User,
    )
    from rem.settings import Settings

_HOMES = {
    "Rem": "rem.app",
    "Scope": "rem.context",
    "MemoryManager": "rem.memory.manager",
    "NewMessage": "rem.memory.message",
    "Settings": "rem.settings",
    "Store": "rem.db.store",
    "ConflictError": "rem.errors",
    "DeletedError": "rem.errors",
    "InvalidInputError": "rem.errors",
    "NotFoundError": "rem.errors",
    "RemError": "rem.errors",
}

__all__ = [
    "Approval",
    "ConflictError",
    "DeletedError",
    "Document",
    "Edge",
    "Entity",
    "Feedback",
    "File",
    "InvalidInputError",
    "MemoryManager",
    "Message",
    "Moment",
    "NewMessage",
    "NotFoundError",
    "Ontology",
    "OntologyConfig",
    "Rem",
    "RemError",
    "Resource",
    "Role",
    "Schema",
    "Scope",
    "Session",
    "Settings",
    "SharedSession",
    "Store",
    "ToolGap",
    "User",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rem' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "rem.models")), name)
