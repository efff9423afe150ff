"""Check names and docstrings: one class name for one thing, docstrings that start with a verb, plain constants."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "rem"
FILES = sorted(SOURCE.rglob("*.py"))
# A docstring that starts with one of these describes a thing. It should say what the function does: "Return the …".
NOT_VERBS = """
a all an and any as both each either every everything for from how if in it its no none nothing of on one only or same
so some that the their these they this those to under until what whatever when where whether which whichever while who
whoever whom whose why with without
"""
VAGUE_CONSTANT = re.compile(r"_?(LONGEST|SHORTEST|MOST|FEWEST|LARGEST|SMALLEST|DEEPEST)(_|$)")


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function that is not a property. A property is a noun, and so is its docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {getattr(item, "id", getattr(item, "attr", "")) for item in node.decorator_list}
            if not decorators & {"property", "cached_property"}:
                yield node


def test_no_public_class_name_exists_twice() -> None:
    places = defaultdict(list)
    for path in FILES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)).replace("/", "."))
def test_function_docstrings_start_with_a_verb(path: Path) -> None:
    for function in functions(parse(path)):
        first_word = (ast.get_docstring(function) or "Return").split()[0].strip("`.,:;").lower()
        assert first_word not in NOT_VERBS.split(), f"{path.name}:{function.lineno} {function.name}"


def test_constants_name_a_limit_and_its_unit() -> None:
    vague = [
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.id}"
        for path in FILES
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and VAGUE_CONSTANT.match(node.id)
    ]
    assert vague == [], "use MAX_… or MIN_… with a unit"
