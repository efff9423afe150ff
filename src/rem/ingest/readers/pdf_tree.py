"""Check the page tree of a PDF before a parser follows it."""

from __future__ import annotations

import re

MAX_OBJECT_HEAD_BYTES = 2000
"""An object begins at most this long before its list of pages."""
MAX_KIDS_BYTES = 1_000_000
_OBJECT = re.compile(rb"(\d{1,9})\s+\d{1,5}\s+obj\b")
_REFERENCE = re.compile(rb"(\d{1,9})\s+\d{1,5}\s+R\b")


def has_cyclic_page_tree(data: bytes) -> bool:
    """Return whether a part of a PDF's page tree contains itself, which parsers follow without end.

    Only trees in plain objects are seen. The time limit ends the others.
    """
    tree: dict[int, list[int]] = {}
    position = data.find(b"/Kids")
    while position >= 0:
        head = data[max(0, position - MAX_OBJECT_HEAD_BYTES) : position]
        number = next(iter(_OBJECT.findall(head)[-1:]), None)
        array_end = data.find(b"]", position, position + MAX_KIDS_BYTES)
        if number is not None and array_end > 0:
            tree[int(number)] = [int(kid) for kid in _REFERENCE.findall(data[position:array_end])]
        position = data.find(b"/Kids", position + 1)
    return _has_cycle(tree)


def _has_cycle(tree: dict[int, list[int]]) -> bool:
    """Return whether a node can be reached from itself. A node is done when all nodes below it are done."""
    done: set[int] = set()
    for root in tree:
        if root in done:
            continue
        path = {root}
        pending = [(root, iter(tree[root]))]
        while pending:
            node, kids = pending[-1]
            kid = next((kid for kid in kids if kid in tree and kid not in done), None)
            if kid is None:
                done.add(node)
                path.remove(node)
                pending.pop()
            elif kid in path:
                return True
            else:
                path.add(kid)
                pending.append((kid, iter(tree[kid])))
    return False
