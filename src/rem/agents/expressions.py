"""Compute derived scores with a small expression language: `0.7 * correctness + 0.3 * completeness >= 0.8`.

People and models write the expressions, so Python never runs them. The text is parsed into a syntax tree, every node
must be on the list below, and a walk over the tree computes the value. There are no attributes, indexes, strings,
powers or loops, so an expression ends at once and reaches nothing but the scores.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Score: TypeAlias = bool | float

MAX_EXPRESSION_CHARS = 500
MAX_NODES = 200
MAX_NUMBER = 1e9

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "mean": lambda *values: sum(values) / len(values),
}
_ALLOWED_NODES = {
    *(ast.BinOp, ast.Compare, ast.UnaryOp, ast.BoolOp, ast.IfExp, ast.Name, ast.Load),
    *(ast.And, ast.Or, ast.Not, ast.USub, *_OPERATORS, *_COMPARISONS),
}
_LANGUAGE = "use numbers, names of scores, + - * /, comparisons, and, or, not, if else, min, max, abs and mean"


class ExpressionError(ValueError):
    """The expression is not valid, or has no value."""


class Expression:
    """A parsed expression. `names` are the scores that it uses."""

    def __init__(self, text: str) -> None:
        """Parse a text. Raise ExpressionError, which says what is not allowed."""
        self._root = _parse(text)
        functions = {id(node.func) for node in ast.walk(self._root) if isinstance(node, ast.Call)}
        names = (node for node in ast.walk(self._root) if isinstance(node, ast.Name) and id(node) not in functions)
        self.names = tuple(dict.fromkeys(node.id for node in names))

    def compute(self, scores: Mapping[str, Score]) -> Score:
        """Return the value. Raise ExpressionError if a score is missing or the value is not a finite number."""
        try:
            result = _compute(self._root, scores)
            value: Score = result if isinstance(result, bool) else float(result)
        except ZeroDivisionError as error:
            raise ExpressionError("divides by zero") from error
        except OverflowError as error:
            raise ExpressionError("has a value that is too large") from error
        if not math.isfinite(value):
            raise ExpressionError("has a value that is not a finite number")
        return value


def _parse(text: str) -> ast.expr:
    if len(text) > MAX_EXPRESSION_CHARS:
        raise ExpressionError(f"is longer than {MAX_EXPRESSION_CHARS} characters: divide it into several scores")
    try:
        root = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"is not an expression: {_LANGUAGE}") from error
    nodes = list(ast.walk(root))
    if len(nodes) > MAX_NODES:
        raise ExpressionError(f"has more than {MAX_NODES} parts: divide it into several scores")
    for node in nodes:
        _check_node(node)
    return root


def _check_node(node: ast.AST) -> None:
    """Raise ExpressionError if a node is not part of the language."""
    match node:
        case ast.Constant():
            _check_constant(node)
        case ast.Call():
            _check_call(node)
        case _ if type(node) not in _ALLOWED_NODES:
            raise ExpressionError(f"has a part that is not supported ({type(node).__name__}): {_LANGUAGE}")


def _check_constant(node: ast.Constant) -> None:
    if not isinstance(node.value, bool | int | float):
        raise ExpressionError(f"has a value that is not a number: {_LANGUAGE}")
    if not abs(node.value) <= MAX_NUMBER:
        raise ExpressionError(f"has a number beyond {MAX_NUMBER:,.0f}")


def _check_call(node: ast.Call) -> None:
    if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
        raise ExpressionError(f"calls something that is not supported: {_LANGUAGE}")
    if node.keywords or not node.args or (node.func.id == "abs" and len(node.args) > 1):
        raise ExpressionError(f"calls {node.func.id} with the wrong values")


def _compute(node: ast.expr, scores: Mapping[str, Score]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            if name not in scores:
                raise ExpressionError(f"uses {name}, which has no value")
            return scores[name]
        case ast.UnaryOp(op=op, operand=operand):
            value = _compute(operand, scores)
            return not value if isinstance(op, ast.Not) else -value
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_compute(left, scores), _compute(right, scores))
        case ast.BoolOp(op=op, values=values):
            results = (bool(_compute(value, scores)) for value in values)
            return all(results) if isinstance(op, ast.And) else any(results)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _compute(body if _compute(test, scores) else orelse, scores)
        case ast.Compare():
            return _compare(node, scores)
        case ast.Call(func=ast.Name(id=name), args=args):
            values = [_compute(arg, scores) for arg in args]
            return _FUNCTIONS[name](*values) if name in ("abs", "mean") else _FUNCTIONS[name](values)
    raise ExpressionError("is not supported")


def _compare(node: ast.Compare, scores: Mapping[str, Score]) -> bool:
    left = _compute(node.left, scores)
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = _compute(comparator, scores)
        if not _COMPARISONS[type(op)](left, right):
            return False
        left = right
    return True
