"""The sample workspace."""

from __future__ import annotations

from importlib.resources import files

from rem.db.yaml_rows import TableBlock, read_blocks


def read_workspace() -> list[TableBlock]:
    """The sample workspace's rows."""
    text = (files("rem.demo") / "workspace.yaml").read_text(encoding="utf-8")
    return read_blocks(text, "workspace.yaml")
