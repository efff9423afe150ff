"""No text that somebody writes takes more than linear time: no regular expression, and no function that reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rem.text import compile_bounded

REPOSITORY = Path(__file__).parent.parent.parent
LIMIT_SECONDS = 900
"""They take about a minute each on a quiet machine. They measure CPU time, and a busy machine only makes them wait."""
MIN_PATTERNS = 500
MIN_READERS = 120
PLANTED = r"""
import re
from functools import cache
from rem.rules import alternatives
from rem.text import compile_bounded

_OBJECT = r"(?:it|them|these|those|this|that|all|both|all of (?:it|them)|everything)"
_VERB = r"(?:forget|delete|remove|erase|correct|change|replace|do|go ahead with)"
WHO_IS = re.compile(
    r"\b[Ww]ho(?:'s| is| are| was)\s+"
    r"((?:(?:Mr|Mrs|Ms|Dr|Prof|Frau|Herr|Father)\.? )?(?:[A-Z][\w'-]*\s*)+)[?.!]*\s*\Z"
)
YES = re.compile(
    r"(?:yes|do it|go ahead)"
    rf"(?:[\s,.!]+(?:please|sure|yes|do it|go ahead|(?:please )?{_VERB}(?: {_OBJECT})?(?: please)?|all(?: of them)?))*"
)
RULE = re.compile(r"\|?[ :|-]*-{2,}[ :|-]*\|?|(?:[*_] ?){3,}|={3,}")
EMPHASIS = re.compile(r"(\*\*|__|~~|`)(?=\S)([^\n]*?\S)\1")
TITLE = re.compile(r"\A\s*# +([^\n]+?)(?: +#+)?[ \t]*(?:\n|\Z)")
MARKUP = re.compile(r"^\s*(?:[#>*+-]+|\d+[.)])\s+", re.MULTILINE)
LEADING = re.compile(r"\s*x")
BYTES = re.compile(rb"[^@]+@")
MATCHED = re.compile(r"[a-z]+!").match
BOUNDED = compile_bounded(r"\s*x", 500)
LOOSELY_BOUNDED = compile_bounded(r"\s*x", 50_000)
FINE = re.compile(r"(?<!\s)\s*x|\w+")


@cache
def in_function():
    return re.compile(r"\d+%")  # Pattern


def in_plain_function(name):
    kind = rf"{re.escape(name)} [a-z]+ *"
    return re.search(rf"{kind} *\Z", name)


def split(text):
    return re.split(r",* ", text)
"""
PLANTED_YAML = """
section:
  words: some words
  entries: ["(?:\\\\w+ ?)+x", "fine"]
"""


def run(module: str, *arguments: str, path: Path | None = None) -> list[Any]:
    """Run a script in a process of its own, which can be ended, and return the lines of JSON that it prints."""
    result = subprocess.run(
        [sys.executable, "-m", f"tests.security.{module}", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(path or ""), str(REPOSITORY)]))},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_every_pattern_takes_linear_time() -> None:
    count, *slow = run("pattern_attacks", "rem")
    assert count["patterns"] > MIN_PATTERNS
    assert slow == []


def test_every_reader_of_texts_takes_linear_time() -> None:
    count, *slow = run("reader_attacks")
    assert count["readers"] > MIN_READERS
    assert slow == []


def test_slow_pattern_is_found_in_source_and_in_yaml(tmp_path: Path) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "patterns.py").write_text(PLANTED)
    (package / "rules.yaml").write_text(PLANTED_YAML)
    _, *slow = run("pattern_attacks", "planted", path=tmp_path)
    lines = ["", *PLANTED.splitlines()]
    found = set()
    for finding in slow:
        file, _, rest = finding["place"].partition(":")
        found.add(lines[int(rest)].strip().partition(" = ")[0] if file == "patterns.py" else file)
    assert found == {
        *("WHO_IS", "YES", "RULE", "EMPHASIS", "TITLE", "MARKUP", "LEADING", "BYTES", "LOOSELY_BOUNDED"),
        'return re.compile(r"\\d+%")  # Pattern',
        'return re.search(rf"{kind} *\\Z", name)',
        'return re.split(r",* ", text)',
        "rules.yaml",
    }


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("from re import compile as build\nSLOW = build('a')\n", "import re"),
        ("import re\nread = re.search\nread('a+!', 'a')\n", "call it"),
    ],
)
def test_hidden_use_of_re_is_refused(tmp_path: Path, source: str, reason: str) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").write_text(source)
    with pytest.raises(AssertionError, match=reason):
        run("pattern_attacks", "planted", path=tmp_path)


def test_bounded_pattern_matches_no_longer_text() -> None:
    pattern = compile_bounded(r"a+", 5)
    assert pattern.search("xaaa")
    assert pattern.fullmatch("aaaaa")
    assert len(list(pattern.finditer("a a a"))) == 3
    assert pattern.search("xaaaaa") is None
    assert pattern.fullmatch("aaaaaa") is None
    assert list(pattern.finditer("a a aa")) == []
