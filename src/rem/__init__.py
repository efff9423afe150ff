"""REM: Resources, Entities, Moments. A memory for AI agents, on PostgreSQL.

Users import from `rem` and `rem.evals`. The names are those of `rem.public`, which is imported when the first of them
is used, so that `import rem` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rem.public import *  # noqa: F403  # without it, type checkers would take every name for Any
else:

    def __getattr__(name: str) -> Any:
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module 'rem' has no attribute {name!r}")
        public = import_module("rem.public")
        names = sorted(exported for exported in vars(public) if not exported.startswith("_"))
        if name == "__all__":
            return names
        if name not in names:
            raise AttributeError(f"module 'rem' has no attribute {name!r}")
        return getattr(public, name)

    def __dir__() -> list[str]:
        return __getattr__("__all__")
