"""The cases of the specification (`conformance.json`), and the queries that the fuzz tests mutate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("conformance.json")
SPECIFICATION: dict[str, list[dict[str, Any]]] = json.loads(_FILE.read_text(encoding="utf-8"))
CASES = [(case["query"], case["tree"]) for case in SPECIFICATION["cases"]]
ERRORS = [(case["query"], case["message_contains"]) for case in SPECIFICATION["errors"]]
SEEDS = [
    *(query for query, _ in CASES),
    *(query for query, _ in ERRORS),
    "SEARCH x WHERE category = 'docs' AND (a > 1 OR NOT b IN (1, 2)) LIMIT 3",
    'SEARCH x WHERE name = \'O\'\'Brien\' or "name" = "x\\"y" MODE text',
    "SEARCH x WHERE created_at BETWEEN '2026-01-01' AND '2026-02-01' AND metadata.a.b IS NOT NULL",
    "TRAVERSE manages, mentors WITH SEARCH Sally Jones FROM users WHERE a = 1 DEPTH 2 ORDER BY weight DESC LIMIT 5",
    "TRAVERSE WITH (SELECT key FROM t WHERE x = ')' -- )\n) TYPE [a, \"b c\"] DIRECTION both",
    "TRAVERSE WITH (TRAVERSE WITH FUZZY sara THRESHOLD .4 DEPTH 2) DEPTH 3",
    "SQL resources WHERE lower(name) = 'x' ORDER BY name DESC LIMIT 5",
    "SEARCH x SINCE last week UNTIL 2026-08-01 WHERE a = 1 LIMIT 3",
    "SELECT $$it's;$$, E'\\'', \"a\"\"b\" /* ; /* x */ */ FROM t;",
]
