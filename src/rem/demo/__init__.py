"""The sample workspace that `rem demo` loads."""

from __future__ import annotations

from importlib.resources import files

from rem.db.yaml_rows import TableBlock, read_blocks


def read_workspace() -> list[TableBlock]:
    """Return the rows of the sample workspace, by table."""
    text = (files("rem.demo") / "workspace.yaml").read_text(encoding="utf-8")
    return read_blocks(text, "workspace.yaml")
