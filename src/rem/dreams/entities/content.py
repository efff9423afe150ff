"""Collect what texts say about an entity: one dated line for each statement, the newest first."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from rem.dreams.entities.rule_extraction import is_part_of_name
from rem.dreams.entities.subjects import SourceText
from rem.rules import alternatives
from rem.text import collapse_spaces, find_sentence_spans

MAX_CONTENT_CHARS = 3000
"""Characters from one subject. The row keeps the newest 4,000 of all subjects."""
MAX_STATEMENTS = 40
MAX_STATEMENT_CHARS = 400
MAX_FOLLOWING_SENTENCES = 2
_MARKER = re.compile(r"^(?:[-*+>•]|\d{1,3}[.)]) +(?:\[[ xX]\] +)?")
"""The sign of a list item or a quotation in Markdown."""
_HEADING = re.compile(r"#{1,6} ")
_ABOUT_THE_SAME = re.compile(rf"\A\s*{alternatives('tagged_names.pronouns')}\b", re.IGNORECASE)
"""At the beginning of a sentence: it goes on about the person of the sentence before it."""


def find_statements_about(texts: Sequence[SourceText], labels: Collection[str]) -> list[tuple[int, str]]:
    """Return the sentences with one of the labels, each with the index of its text, in their order.

    Sentences that go on with "she" or "he" belong to the one before them.
    """
    names = sorted((label for label in labels if label.strip()), key=lambda label: (-len(label), label))
    if not names:
        return []
    pattern = re.compile(rf"(?<![\w@.<-])(?:{'|'.join(map(re.escape, names))})(?![\w@-])")
    return [
        (index, statement)
        for index, text in enumerate(texts)
        if text.has_statements
        for statement in _find_in_text(text.text, pattern)
    ]


def _find_in_text(text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    offsets = [
        match.start()
        for match in pattern.finditer(text)
        if " " in match.group() or not is_part_of_name(text, match.start(), match.end())
    ]
    spans = list(find_sentence_spans(text)) if offsets else []
    for number, (start, end) in enumerate(spans):
        if any(start <= offset < end for offset in offsets):
            last = number
            while last - number < MAX_FOLLOWING_SENTENCES and last + 1 < len(spans) and _goes_on(text, spans[last + 1]):
                last += 1
            statement = collapse_spaces(text[start : spans[last][1]])
            # A heading only names what the text below it is about.
            if not statement.startswith("#"):
                yield _MARKER.sub("", statement)[:MAX_STATEMENT_CHARS]


def _goes_on(text: str, span: tuple[int, int]) -> bool:
    return _ABOUT_THE_SAME.match(text[span[0] : span[1]]) is not None


def format_statements(texts: Sequence[SourceText], statements: Iterable[tuple[int, str]]) -> str:
    """Return statements as lines with the dates of their texts, newest first, each sentence once."""
    first_index: dict[str, int] = {}
    for index, sentence in statements:
        if sentence and not _HEADING.match(sentence):
            first_index[sentence] = min(index, first_index.get(sentence, index))
    # Evidence may be a part of a longer statement.
    order = [one for one in first_index if not any(one != other and one in other for other in first_index)]
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
