"""The built-in knowledge about REM: which questions it answers, and that its commands and settings exist."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from rem import Rem
from rem.cli.main import build_command
from rem.cli.settings_reference import render_settings
from rem.models import Entity
from rem.query.language.parser import parse_query
from rem.tools.help import answer_about_rem, load_help_topics
from rem.tools.resources import read_page
from tests.tools.tool_env import env_for


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("What is REM?", "memory for AI agents"),
        ("what's REM", "memory for AI agents"),
        ("Who are you?", "memory for AI agents"),
        ("Was ist REM?", "memory for AI agents"),
        ("Hi! Please explain REM.", "memory for AI agents"),
        ("What can you do?", "Tell me something"),
        ("help", "Tell me something"),
        ("How do I use REM?", "Tell me something"),
        ("How do I add notes?", "rem ingest"),
        ("How can I upload a PDF?", "rem ingest"),
        ("How do I search my notes?", "SEARCH"),
        ("How do I delete a memory?", "rem forget"),
        ("How do I continue an old conversation?", "rem sessions"),
        ("What are moments in REM?", "moment is an event"),
        ("how does dreaming work?", "Only statements become memories"),
        ("How do I create my own agent?", "YAML"),
        ("How do I set up a language model?", "LLM__DEFAULT_MODEL"),
        ("Who can see my notes?", "belongs to one user"),
        ("How do I turn the volume down in REM?", "I know about these parts of REM"),
    ],
)
def test_question_about_rem_is_answered(question: str, words: str) -> None:
    assert words in (answer_about_rem(question) or "")


@pytest.mark.parametrize(
    "question",
    [
        "What is REM sleep?",
        "Who is Sarah Chen?",
        "How do I get to the office?",
        "How do I delete the branch feature-x?",
        "How do I cook pasta?",
        "What are the moments of inertia of a cylinder?",
        "What can you tell me about Atlas?",
        "help with tomatoes",
        "I told REM about my boat.",
        "Who are you meeting tomorrow?",
        "",
        "what is rem " * 100,
    ],
)
def test_other_questions_are_not_answered(question: str) -> None:
    assert answer_about_rem(question) is None


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
    store = rem.store("alice@example.com")
    models: list[type[Entity]] = list(store.types.models.values())
    assert [await store.count(model) for model in models] == [0] * len(models)
