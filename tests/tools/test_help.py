"""The built-in knowledge about REM: its commands and settings exist."""

from __future__ import annotations

import re
import shlex
from typing import Any

from tooling.settings_reference import render_settings

from rem import Rem
from rem.cli.main import build_command
from rem.models import Entity
from rem.query.parser import parse_query
from rem.tools.help import load_help_topics
from rem.tools.resources import read_page
from tests.tools.tool_env import env_for


def test_commands_queries_and_settings_in_the_topics_exist() -> None:
    settings = render_settings()
    for topic in load_help_topics():
        for code in re.findall(r"`([^`]+)`", topic.text.replace("\n", " ")):
            if code.startswith("rem "):
                command: Any = build_command()
                for argument in shlex.split(code)[1:]:
                    if subcommands := getattr(command, "commands", None):
                        assert argument in subcommands or hasattr(command, "default_command"), code
                        command = subcommands.get(argument)
            elif re.match(r"(?:LOOKUP|FUZZY|SEARCH|TRAVERSE|SELECT) ", code):
                parse_query(code)
            elif re.fullmatch(r"[A-Z_]+(?:=\w+)?", code):
                assert f"`{code.partition('=')[0]}`" in settings, code


async def test_topics_are_a_resource_and_no_rows(rem: Rem) -> None:
    page = await read_page(env_for(rem, "alice@example.com"), "rem://help")
    assert page["count"] == len(load_help_topics())
    assert "memory for AI agents" in page["topics"][0]["text"]
    store = rem.for_user("alice@example.com").store
    models: list[type[Entity]] = list(store.types.models.values())
    assert [await store.count(model) for model in models] == [0] * len(models)
