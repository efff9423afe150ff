"""The grammar, examples and errors in docs/query-language.md are those of the parser."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from rem.app import Rem
from rem.demo import DEMO_TENANT, load_workspace
from rem.errors import QuerySyntaxError
from rem.query.grammar import describe_grammar
from rem.query.parser import parse_query
from rem.query.printer import print_query
from rem.query.where import describe_condition_grammar
from tests.rem_command import REPOSITORY, environment

_PAGE = (REPOSITORY / "docs" / "query-language.md").read_text(encoding="utf-8")
_EXAMPLES = [line for block in re.findall(r"```rem\n(.*?)```", _PAGE, re.DOTALL) for line in block.splitlines()]
_IN_TEXT = re.findall(r"`((?:LOOKUP|FUZZY|SEARCH|TRAVERSE|SQL|SELECT) [^`]*[^`…])`", _PAGE)
_TRANSCRIPTS = re.findall(r"```text\n\$ rem parse '(.*?)'\nError: (.*?)\n```", _PAGE, re.DOTALL)


@pytest.mark.parametrize(
    ("name", "text"), [("grammar", describe_grammar()), ("condition", describe_condition_grammar())]
)
def test_documented_grammar_equals_the_parser(name: str, text: str) -> None:
    found = re.search(rf"<!-- {name} -->\n```text\n(.*?)\n```", _PAGE, re.DOTALL)
    assert found is not None
    assert found[1] == text


@pytest.mark.parametrize("query", [*_EXAMPLES, *_IN_TEXT])
def test_documented_queries_parse(query: str) -> None:
    assert parse_query(print_query(parse_query(query))) == parse_query(query)


async def test_documented_queries_find_something_in_the_sample_workspace(rem: Rem) -> None:
    await load_workspace(rem.for_user(tenant=DEMO_TENANT).store)
    await rem.for_user(tenant=DEMO_TENANT).index()
    in_table = re.findall(r"^\| `[A-Z]+` \|[^|]*\| `([^`]*)` \|$", _PAGE, re.MULTILINE)
    queries = [*in_table, *_EXAMPLES]
    assert len(queries) > 30
    assert len(in_table) == 5
    without_rows = [query for query in queries if not (await rem.for_user(tenant=DEMO_TENANT).query(query)).count]
    assert without_rows == []


@pytest.mark.parametrize(("query", "message"), _TRANSCRIPTS)
def test_documented_errors_are_exact(query: str, message: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(query)
    assert str(caught.value) == message


def test_python_example_prints_its_comments() -> None:
    found = re.search(r"<!-- example: python -->\n```python\n(.*?)```", _PAGE, re.DOTALL)
    assert found is not None
    code = [sys.executable, "-c", found[1]]
    done = subprocess.run(code, env=environment({}), capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == re.findall(r"print\(.*\)  # (.*)", found[1])


def test_page_has_enough_examples() -> None:
    assert len(_EXAMPLES) > 20
    assert len(_IN_TEXT) >= 5
    assert len(_TRANSCRIPTS) == 2
