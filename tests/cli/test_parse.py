"""The command `rem parse`. It needs no database."""

from __future__ import annotations

import json

from tests.rem_command import output, rem


def test_parse_prints_tree_as_json() -> None:
    printed = output("parse", "TRAVERSE manages WITH LOOKUP 'Zoë' LIMIT 3", "--json", settings={})
    assert json.loads(printed) == {
        "type": "TRAVERSE",
        "start": {"type": "LOOKUP", "keys": ["Zoë"], "table": None},
        "edge_types": ["manages"],
        "depth": 1,
        "limit": 3,
        "direction": "out",
        "order_by": None,
    }


def test_parse_prints_tree_as_text() -> None:
    assert output("parse", "TRAVERSE manages, mentors WITH FUZZY sally DEPTH 2", settings={}) == (
        "TRAVERSE\n"
        "  start: FUZZY\n"
        "    text: sally\n"
        "    threshold: 0.5\n"
        "    limit: 5\n"
        "  edge_types: manages, mentors\n"
        "  depth: 2\n"
        "  direction: out\n"
        "\n"
        'In short: TRAVERSE WITH (FUZZY "sally") TYPE "manages", "mentors" DEPTH 2\n'
    )


def test_parse_prints_syntax_error_to_stderr() -> None:
    for arguments in (["LOKUP x"], ["LOKUP x", "--json"]):
        refused = rem("parse", *arguments, settings={})
        assert refused.returncode == 2
        assert refused.stdout == ""
        assert refused.stderr.startswith("Error: Unknown verb 'LOKUP'")
        assert refused.stderr.endswith("  LOKUP x\n  ^\nDid you mean: LOOKUP x\n")


def test_parse_rejects_empty_query() -> None:
    refused = rem("parse", "", settings={})
    assert refused.returncode == 2
    assert "Empty query" in refused.stderr
