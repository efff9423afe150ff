"""Markdown of notes becomes plain sentences in answers."""

from __future__ import annotations

import time

import pytest

from rem.answers.plain_markdown import MAX_READ_CHARS, strip_markdown


@pytest.mark.parametrize(
    ("markdown", "title", "text"),
    [
        ("# Plum cake\n\nYeast dough.", "Plum cake", "Yeast dough."),
        ("---\ntitle: Marta\n---\n\n# Marta\nMy *sister*.", "Marta", "My sister."),
        ("# Only a title", "", "Only a title"),
        ("## Topping\n\n- 1 kg plums\n- **50 g** sugar\n\nBake it.", "", "Topping: 1 kg plums; 50 g sugar. Bake it."),
        ("Buy:\n1. eggs\n2. flour", "", "Buy: 1. eggs; 2. flour"),
        ("- [ ] call the bank\n- [x] pay the rent", "", "call the bank; pay the rent (done)"),
        ("See [Ana's recipe](https://example.com/a) and [[streusel|crumble]].", "", "See Ana's recipe and crumble."),
        ("![a cake](cake.png) with `sugar`", "", "a cake with sugar"),
        ("| phone | 0171 22 |\n| --- | --- |\n| size | 38 |", "", "phone: 0171 22; size: 38"),
        ("> Quoted.\n> Twice.", "", "Quoted. Twice."),
        ("```sh\n# no heading\nls *.py *.md\n```", "", "# no heading ls *.py *.md"),
        ("Line one\nline two", "", "Line one line two"),
        ("2 * 3 * 4, snake_case_name, C# and #12", "", "2 * 3 * 4, snake_case_name, C# and #12"),
        ("", "", ""),
    ],
)
def test_markdown_becomes_plain_text(markdown: str, title: str, text: str) -> None:
    assert strip_markdown(markdown) == (title, text)


@pytest.mark.parametrize("sign", ["*", "_", "[", "`", "![", "[[", "> ", "- ", "| ", "# ", "\\", "a*", "(["])
def test_odd_marks_take_little_time(sign: str) -> None:
    started = time.process_time()
    strip_markdown(sign * (MAX_READ_CHARS // len(sign)))
    assert time.process_time() - started < 1
