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
    from rem.errors import RemError
    from rem.models import (
        Document,
        Edge,
        Entity,
        File,
        Message,
        Moment,
        Ontology,
        OntologyConfig,
        Resource,
        Schema,
        Session,
        User,
    )
    from rem.settings import Settings

_HOMES = {
    "Rem": "rem.app",
    "Scope": "rem.context",
    "Store": "rem.db.store",
    "RemError": "rem.errors",
    "Settings": "rem.settings",
}

__all__ = [
    "Document",
    "Edge",
    "Entity",
    "File",
    "Message",
    "Moment",
    "Ontology",
    "OntologyConfig",
    "Rem",
    "RemError",
    "Resource",
    "Schema",
    "Scope",
    "Session",
    "Settings",
    "Store",
    "User",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rem' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "rem.models")), name)
