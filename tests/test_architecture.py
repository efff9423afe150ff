"""Imports point downwards, and `import rem` is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.source_code import SOURCE, parse_source

_LAYERS = {
    "interfaces": {"cli", "api", "mcp"},
    "services": {
        "administration",
        "agents",
        "answers",
        "app",
        "approvals",
        "audio",
        "audit",
        "auth",
        "demo",
        "dreams",
        "evals",
        "forget",
        "ingest",
        "jobs",
        "knowledge",
        "memory",
        "rate_limits",
        "sessions",
        "tools",
    },
    "engine": {"db", "encryption", "message_kind_model", "message_kinds", "privacy", "query", "rules", "search"},
    "models": {
        "context",
        "errors",
        "events",
        "fair_map",
        "log_output",
        "log_scrubber",
        "metrics",
        "models",
        "settings",
        "text",
    },
}
"""Each part of the package by its layer, from the top."""
_LEVEL = {part: -level for level, parts in enumerate(_LAYERS.values()) for part in parts}


def _imports(tree: ast.AST, *, with_types: bool) -> set[str]:
    """Return what a file imports of rem, also inside functions, with or without what it imports for types only."""
    found = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not with_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        found |= _imports(node, with_types=with_types)
    return {name for name in found if name.startswith("rem.")}


def test_imports_never_point_to_a_higher_layer() -> None:
    upwards = []
    for path, tree in parse_source().items():
        own = path.parts[0].removesuffix(".py")
        if own in ("__init__", "__main__", "public"):
            continue
        upwards += [
            f"{path} imports {name}, which is in a higher layer"
            for name in _imports(tree, with_types=True)
            if _LEVEL.get(name.split(".")[1], 0) > _LEVEL[own]
        ]
    assert upwards == []


def test_every_part_has_its_layer() -> None:
    parts = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - {"__init__", "__main__", "public"} == set(_LEVEL)


def test_importing_rem_imports_nothing_heavy() -> None:
    probe = "import sys, rem; print(sorted({'pydantic', 'asyncpg', 'fastapi', 'yaml', 'rich'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"


def test_every_public_name_can_be_imported() -> None:
    import rem

    assert 40 < len(dir(rem)) < 60
    for name in dir(rem):
        exported = getattr(rem, name)
        # A type alias has no name of its own, and a module has that of its package, too.
        assert getattr(exported, "__name__", name).removeprefix("rem.") == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rem.nothing  # type: ignore[attr-defined]


def test_opening_rem_does_not_import_the_readers_of_files() -> None:
    probe = "import sys, rem.app; print([name for name in sys.modules if name.startswith('rem.ingest')])"
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"
