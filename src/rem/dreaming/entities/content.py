"""Collect what texts say about an entity: one dated line for each statement, the newest first."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from rem.dreaming.entities.name_parsing import get_sentence_at
from rem.dreaming.entities.rule_extraction import is_part_of_name
from rem.dreaming.entities.subjects import SourceText

MAX_CONTENT_CHARS = 3000
"""Characters from one subject. The row keeps the newest 4,000 of all subjects."""
MAX_STATEMENTS = 40


def find_statements_about(texts: Sequence[SourceText], labels: Collection[str]) -> list[tuple[int, str]]:
    """Return the sentences with one of the labels, each with the index of its text, in their order."""
    names = sorted((label for label in labels if label.strip()), key=lambda label: (-len(label), label))
    if not names:
        return []
    pattern = re.compile(rf"(?<![\w@.<-])(?:{'|'.join(map(re.escape, names))})(?![\w@-])")
    return [
        (index, get_sentence_at(text.text, match.start()))
        for index, text in enumerate(texts)
        for match in pattern.finditer(text.text)
        if " " in match.group() or not is_part_of_name(text.text, match.start(), match.end())
    ]


def format_statements(texts: Sequence[SourceText], statements: Iterable[tuple[int, str]]) -> str:
    """Return statements as lines with the dates of their texts, newest first, each sentence once."""
    first_index: dict[str, int] = {}
    for index, sentence in statements:
        if sentence:
            first_index[sentence] = min(index, first_index.get(sentence, index))
    order = list(first_index)
    newest = sorted(order, key=lambda sentence: (texts[first_index[sentence]].at, order.index(sentence)), reverse=True)
    lines: list[str] = []
    chars = 0
    for sentence in newest[:MAX_STATEMENTS]:
        line = f"{texts[first_index[sentence]].at:%Y-%m-%d}: {sentence}"
        chars += len(line) + 1
        if lines and chars > MAX_CONTENT_CHARS:
            break
        lines.append(line)
    return "\n".join(lines)
