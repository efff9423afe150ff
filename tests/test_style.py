"""Check names and docstrings: one class name for one thing, docstrings that start with a verb, plain constants."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.source_code import parse_source

# A docstring that starts with one of these describes a thing. It should say what the function does: "Return the …".
NOT_VERBS = """
a all an and any as both each either every everything for from how if in it its no none nothing of on one only or same
so some that the their these they this those to under until what whatever when where whether which whichever while who
whoever whom whose why with without
"""
VAGUE_CONSTANT = re.compile(r"_?(LONGEST|SHORTEST|MOST|FEWEST|LARGEST|SMALLEST|DEEPEST)(_|$)")


@dataclass
class Names:
    """What the source defines, with the place of each."""

    classes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    functions: dict[str, str] = field(default_factory=dict)
    """The first word of the docstring, by place and name. A property is a noun, and so is its docstring."""
    constants: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def names() -> Names:
    """Return the names in all files."""
    found = Names()
    for path, tree in parse_source().items():
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef(name=name) if not name.startswith("_"):
                    found.classes[name].append(_describe_place(path, node))
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    decorators = {getattr(item, "id", getattr(item, "attr", "")) for item in node.decorator_list}
                    if not decorators & {"property", "cached_property"}:
                        first_word = (ast.get_docstring(node) or "Return").split()[0].strip("`.,:;").lower()
                        found.functions[f"{_describe_place(path, node)} {node.name}"] = first_word
                case ast.Name(id=name, ctx=ast.Store()):
                    found.constants[f"{_describe_place(path, node)} {name}"] = name
    return found


def _describe_place(path: Path, node: ast.stmt | ast.expr) -> str:
    return f"{path}:{node.lineno}"


def test_no_public_class_name_exists_twice(names: Names) -> None:
    assert {name: places for name, places in names.classes.items() if len(places) > 1} == {}


def test_function_docstrings_start_with_a_verb(names: Names) -> None:
    assert len(names.functions) > 1000
    assert [place for place, first_word in names.functions.items() if first_word in NOT_VERBS.split()] == []


def test_constants_name_a_limit_and_its_unit(names: Names) -> None:
    vague = [place for place, name in names.constants.items() if VAGUE_CONSTANT.match(name)]
    assert vague == [], "use MAX_… or MIN_… with a unit"
