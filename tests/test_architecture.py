"""Imports point downwards, and `import rem` is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.source_code import SOURCE, parse_source

_LAYERS = [
    {"errors", "text", "log_scrubber", "fair_map"},
    {"settings", "context", "events", "models", "metrics", "log_output"},
    {"privacy", "encryption"},
    {"db", "embeddings", "audio"},
    {"auth", "tagging"},
    {"rate_limits", "audit"},
    {"administration"},
    {"rules", "approvals", "message_kind_model"},
    {"message_kinds"},
    {"retrieval"},
    {"query"},
    {"memory"},
    {"jobs"},
    {"ingest"},
    {"dreaming"},
    {"forgetting"},
    {"demo"},
    {"app"},
    {"tools"},
    {"agents"},
    {"evals"},
    {"worker"},
    {"mcp"},
    {"cli", "api"},
]
_LEVEL = {name: level for level, names in enumerate(_LAYERS) for name in names}


def _imports(tree: ast.Module) -> list[str]:
    """Every part of rem that a file imports, also inside functions and for types."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module] if node.module != "rem" else [f"rem.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return [name for name in found if name.startswith("rem.")]


def test_imports_point_downwards() -> None:
    upwards = []
    for path, tree in parse_source().items():
        own = path.parts[0].removesuffix(".py")
        if own in ("__init__", "__main__"):
            continue
        others = {name: name.split(".")[1] for name in _imports(tree)}
        upwards += [
            f"{path} imports {name}, which is not below it"
            for name, other in others.items()
            if other != own and _LEVEL[other] >= _LEVEL[own]
        ]
    assert upwards == []


def test_every_part_has_its_layer() -> None:
    parts = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - {"__init__", "__main__"} == set(_LEVEL)


def test_importing_rem_imports_nothing_heavy() -> None:
    probe = "import sys, rem; print(sorted({'pydantic', 'asyncpg', 'fastapi', 'yaml', 'rich'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"


def test_every_public_name_can_be_imported() -> None:
    import rem

    assert sorted(rem._MODULES) == sorted(rem.__all__)
    for name in rem.__all__:
        exported = getattr(rem, name)
        # A type alias has no name of its own.
        assert getattr(exported, "__name__", name) == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rem.nothing


def test_opening_rem_does_not_import_the_readers_of_files() -> None:
    probe = "import sys, rem.app; print([name for name in sys.modules if name.startswith('rem.ingest')])"
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"
