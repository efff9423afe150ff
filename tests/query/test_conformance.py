"""The parser conforms to the specification in `conformance.json`."""

from __future__ import annotations

from typing import Any

import pytest

from rem.errors import QuerySyntaxError
from rem.query.parser import parse_query
from rem.query.tree import to_json
from tests.query.conformance_cases import CASES, ERRORS


@pytest.mark.parametrize(("query", "tree"), CASES)
def test_query_parses_to_the_specified_tree(query: str, tree: dict[str, Any]) -> None:
    parsed = to_json(parse_query(query))
    assert parsed == tree
    assert list(parsed) == list(tree)


@pytest.mark.parametrize(("query", "words"), ERRORS)
def test_error_contains_the_specified_words(query: str, words: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(query)
    assert words.lower() in str(caught.value).lower()


def test_specification_has_cases() -> None:
    assert len(CASES) == 42
    assert len(ERRORS) == 12
