"""Pages about what is stored and how it is asked for."""

from __future__ import annotations

from typing import Any

from rem.query.language.grammar import VERBS, grammar
from rem.tools.env import ToolEnv
from rem.tools.schema import list_entity_types, outline_type

_ASKS_FOR = {
    "LOOKUP": ("what answers to a key; exact and instant", 'LOOKUP "sarah-chen"'),
    "FUZZY": ("names that are nearly right", 'FUZZY "sara" THRESHOLD 0.7'),
    "SEARCH": ("what a text is about, by meaning and words", 'SEARCH "machine learning" FROM resources LIMIT 5'),
    "TRAVERSE": ("what is connected", 'TRAVERSE FROM "sarah-chen" TYPE manages DEPTH 2'),
    "SQL": ("anything a SELECT can say", "SELECT name FROM users LIMIT 3"),
}


async def entities(env: ToolEnv) -> dict[str, Any]:
    """The kinds of things in memory: each table with its fields, its key and what a search reads of it."""
    types = [outline_type(model) for model in await list_entity_types(env)]
    return {"entities": types, "count": len(types)}


async def query_types(env: ToolEnv) -> dict[str, Any]:
    """The query language: its grammar, and for each verb what it asks for and an example."""
    lines = grammar().splitlines()
    verbs = [
        {
            "verb": verb.name,
            "asks_for": _ASKS_FOR[verb.name][0],
            "syntax": line,
            "clauses": {clause.name: clause.expected for clause in verb.clauses},
            "example": _ASKS_FOR[verb.name][1],
        }
        for verb, line in zip(VERBS.values(), lines, strict=True)
    ]
    return {"query_types": verbs, "grammar": grammar(), "modes": ["rem-dialect", "natural-language", "staged-plan"]}
