"""Rows of cells as lines that can be read alone: `name: value; name: value`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

_SPACE = re.compile(r"\s+")
_NUMBER = re.compile(r"[\s\d.,:;%+\-/€$£()]+")


def lines_of(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """One line for each row that is not empty, the first one included. Every cell is in it.

    If the first row gives names to the columns, each value of the others stands behind its name.
    """
    names: list[str] | None = None
    is_first = True
    for row in rows:
        cells = [_SPACE.sub(" ", cell).strip() for cell in row]
        if not any(cells):
            continue
        if is_first:
            names = cells if _are_names(cells) else []
            is_first = False
            yield "; ".join(filter(None, cells))
        else:
            yield "; ".join(_cell(names or [], place, cell) for place, cell in enumerate(cells) if cell)


def _are_names(cells: Sequence[str]) -> bool:
    """Whether a row looks like names of columns: different words, no numbers."""
    given = [cell for cell in cells if cell]
    return (
        len(given) > 1
        and len(set(given)) == len(given)
        and not any(_NUMBER.fullmatch(cell) or len(cell) > 200 for cell in given)
    )


def _cell(names: Sequence[str], place: int, cell: str) -> str:
    name = names[place] if place < len(names) else ""
    return f"{name}: {cell}" if name else cell
