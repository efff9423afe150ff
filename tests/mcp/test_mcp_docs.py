"""The examples and tables of docs/mcp.md are correct."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys

from rem.mcp.clients import CLIENTS
from rem.mcp.prompts import PROMPTS
from rem.tools.binding import get_traits
from rem.tools.registry import TOOLS
from rem.tools.resources import RESOURCE_PAGES
from rem.tools.trimming import MAX_RESULT_CHARS, count_whole_text_chars
from tests.rem_command import REM, REPOSITORY, environment, output

_DOCS = (REPOSITORY / "docs" / "mcp.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    """The code behind a marker."""
    (found,) = re.findall(rf"<!-- {name} -->\n```\w+\n(.*?)```", _DOCS, re.DOTALL)
    return str(found)


def table(name: str) -> list[list[str]]:
    """The cells of the table behind a marker."""
    (found,) = re.findall(rf"<!-- {name} -->\n((?:\|.*\n)+)", _DOCS)
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in str(found).splitlines()[2:]]


def test_python_example_prints_its_comments(dsn: str) -> None:
    example = block("example")
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "PATH": f"{REM.parent}{os.pathsep}{os.environ['PATH']}"}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", example],
            env=environment(settings),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == re.findall(r"print\(.*\)  # (.*)", example)


def test_config_commands_cover_every_client() -> None:
    commands = [shlex.split(line)[1:] for line in block("commands").splitlines()]
    assert {command[2] for command in commands} == set(CLIENTS)
    for command in commands:
        assert "rem" in json.dumps(json.loads(output(*command, settings={})))


def test_tables_list_all_tools_resources_and_prompts() -> None:
    tools = table("tools")
    assert [row[0] for row in tools] == list(TOOLS)
    assert {row[0] for row in tools if not row[2]} == {name for name in TOOLS if get_traits(TOOLS[name]).is_read_only}
    assert [row[0] for row in table("resources")] == [page.uri for page in RESOURCE_PAGES]
    assert all(f"`{prompt.__name__}`" in _DOCS for prompt in PROMPTS)
    assert f"{MAX_RESULT_CHARS:,} characters" in _DOCS
    assert f"offset={count_whole_text_chars(1)}" in _DOCS
