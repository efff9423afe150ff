"""SECURITY.md promises only what a test shows: each test that it names exists, and each promise names one."""

from __future__ import annotations

import re

from tests.rem_command import REPOSITORY

PAGE = (REPOSITORY / "SECURITY.md").read_text(encoding="utf-8")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_named_test_exists() -> None:
    named = TEST.findall(PAGE)
    assert len(named) > 20
    for path, name in named:
        text = (REPOSITORY / path).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), f"{path} has no {name}"


def test_every_promise_names_a_test() -> None:
    (table,) = re.findall(r"## Promises\n\n(.*?)\n\n##", PAGE, re.DOTALL)
    promises = [line for line in table.splitlines() if line.startswith("| ")][1:]
    promises = [line for line in promises if not line.startswith("| ---")]
    assert len(promises) > 10
    for line in promises:
        assert TEST.search(line), line
