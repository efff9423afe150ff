"""Definitions of agents for tests."""

from __future__ import annotations

from typing import Any

from rem.agents.yaml_parser import parse_agent

COMPLETE = """\
type: object
title: Release helper
description: |
  You help with releases. You know them all.

  Answer in one sentence.
properties:
  answer:
    type: string
    minLength: 1
  confidence: {type: number, minimum: 0, maximum: 1}
  released_at: {type: string, format: date-time}
  owner:
    $ref: "#/$defs/person"
required:
  - answer
additionalProperties: false
$defs:
  person:
    type: object
    properties:
      name: {type: string}
    required: [name]
json_schema_extra:
  kind: agent
  name: release-helper
  version: "2.1.0"
  structured_output: true
  model: openai:gpt-4o
  temperature: 0.2
  max_tokens: 500
  request_limit: 7
  total_tokens_limit: 20000
  retries: 3
  enable_rag: true
  tools:
    - name: search_rem
      description: Look for releases.
      mcp_server: rem
    - name: register_metadata
  resources:
    - uri_pattern: rem://agents.*
    - uri_pattern: rem://moments/[0-9]+
"""


def minimal(name: str = "my-agent", description: str = "You are an agent of mine.") -> str:
    """Return the YAML of an agent with only the required fields."""
    return f"description: {description}\njson_schema_extra:\n  name: {name}\n"


MINIMAL_AGENT = parse_agent(minimal(), "x")


def object_schema(**properties: Any) -> dict[str, Any]:
    """Return the JSON schema of an object with these properties."""
    return {"type": "object", "properties": properties}
