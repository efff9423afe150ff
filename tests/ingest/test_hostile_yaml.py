"""Hostile YAML is rejected before its values are built."""

from __future__ import annotations

import time

import pytest

from rem.agents.yaml_parser import parse_agent
from rem.app import Rem
from rem.db.store import Store
from rem.db.yaml import YamlLimitError, load_yaml
from rem.errors import FileUnreadableError, InvalidAgentError
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.prepare import extract_agent_yaml
from rem.ingest.readers.data import read_data
from rem.ingest.readers.markdown import parse_front_matter
from rem.knowledge.openapi import parse_openapi

DEEP = "kind: agent\na: " + "[" * 120_000 + "]" * 120_000
MERGED = (
    "kind: agent\na0: &a0 {x: 1}\n"
    + "".join(f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n  k{n}: 1\n" for n in range(1, 9))
    + "json_schema_extra: {}\n"
)
ALIASES = "kind: agent\nopenapi: 3.0.0\npaths: {}\na0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
SIXTY = "kind: agent\na: " + ":".join(["1"] * 100_000)
BOMBS = {"deep": DEEP, "merged": MERGED, "aliases": ALIASES}


@pytest.mark.parametrize("name", BOMBS)
def test_yaml_bomb_is_rejected_by_every_reader(name: str) -> None:
    text = BOMBS[name]
    started = time.process_time()
    with pytest.raises(YamlLimitError):
        load_yaml(text)
    file = FetchedFile("agent.yaml", "file:///agent.yaml", text.encode())
    with pytest.raises(FileUnreadableError, match=r"nested|values"):
        extract_agent_yaml(file)
    with pytest.raises(FileUnreadableError, match=r"nested|values"):
        parse_openapi(file, ParsedDocument(f"swagger: 2\n{text}", "data", "application/yaml"))
    with pytest.raises(InvalidAgentError):
        parse_agent(text, "The agent")
    assert "invalid" in read_data(file, "application/yaml").metadata
    assert parse_front_matter(f"---\n{text[:40_000]}\n---\nText")[0] is None
    assert time.process_time() - started < 5


def test_base_60_number_stays_text() -> None:
    started = time.process_time()
    loaded = load_yaml(SIXTY)
    assert loaded["a"] == SIXTY.partition("a: ")[2]
    with pytest.raises(InvalidAgentError):
        parse_agent(SIXTY, "The agent")
    assert time.process_time() - started < 3
    assert load_yaml("a: 1:30\nb: 12\nc: 1.5") == {"a": 90, "b": 12, "c": 1.5}


def test_recursive_alias_is_rejected_and_plain_alias_is_not() -> None:
    with pytest.raises(YamlLimitError, match="is inside the value that it repeats"):
        load_yaml("a: &a [*a]")
    assert load_yaml("a: &a {x: 1}\nb:\n  <<: *a\n  y: 2")["b"] == {"x": 1, "y": 2}
    with pytest.raises(YamlLimitError):
        load_yaml("a: &a 1\nb: *a", aliases=False)


async def test_hostile_file_fails_with_the_reason(rem: Rem, alice: Store) -> None:
    async def save(_text: str) -> str:
        return "never"

    ingester = rem.for_user(alice.scope).ingester(save_agent=save)
    outcome = await ingester.ingest(FetchedFile("agent.yaml", "file:///agent.yaml", DEEP.encode()))
    assert outcome.status == "failed"
    assert "nested more than 100 levels deep" in str(outcome.error)
