"""The part of a long text that fits a question is picked."""

from __future__ import annotations

import pytest

from rem.tools.excerpt import pick_excerpt

_TEXT = (
    "The meeting was long. We spoke of the weather and lunch for an hour. The harbour ferries run every ten minutes. "
    "A ticket costs 42 crowns. Then somebody told a story about a cat that lived on a roof. It was a good story."
)


def test_short_text_is_returned_whole() -> None:
    assert pick_excerpt("Short.", "anything", 6) == "Short."


def test_sentences_with_the_words_of_the_question_are_picked() -> None:
    excerpt = pick_excerpt(_TEXT, "What does the ferry ticket cost?", 90)
    assert excerpt == "… The harbour ferries run every ten minutes. A ticket costs 42 crowns. …"


def test_sentence_with_the_answer_is_picked_from_the_end_of_a_long_text() -> None:
    """The words of the question are at the beginning, and the answer is far from them."""
    text = (
        "Project Atlas gives every customer one place to find a forecast. Before it, buyers kept their own lists, and "
        "most searches in the old portal of Atlas ended without a click. It started in March with four pilot customers "
        "and was opened to nine in September. The goals are a median answer under 50 ms and no training for a new "
        "manager. Sarah Chen leads it; Priya Raman builds the retrieval."
    )
    excerpt = pick_excerpt(text, "Who leads Project Atlas?", 200)
    assert "Sarah Chen leads it" in excerpt
    assert excerpt.startswith("Project Atlas gives every customer")
    assert " … " in excerpt
    assert len(excerpt) <= 200


def test_long_sentence_is_picked_in_pieces() -> None:
    text = f"{'It went on and on, ' * 30}and the code for the gate is 4471, {'and so on and so forth, ' * 30}the end."
    excerpt = pick_excerpt(text, "What is the gate code?", 250)
    assert len(excerpt) <= 250


@pytest.mark.parametrize("question", ["", "the of and", "quantum"])
def test_beginning_is_picked_if_no_word_fits(question: str) -> None:
    assert pick_excerpt(_TEXT, question, 60) == "The meeting was long. We spoke of the weather and lunch …"


@pytest.mark.parametrize("text", ["x" * 500, "東京で会議。" * 80, "a. " * 200, "\n" * 400 + "word"])
@pytest.mark.parametrize("max_chars", [20, 100])
def test_excerpt_is_never_longer_than_allowed(text: str, max_chars: int) -> None:
    assert len(pick_excerpt(text, "word 会議", max_chars)) <= max_chars
