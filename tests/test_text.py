"""Text is cleaned, compared and split the same way everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rem.text import clean_text, find_sentence_spans, fold_text, split_sentences, split_words


def test_clean_text_replaces_what_postgresql_cannot_store() -> None:
    assert clean_text("a\0b\ud800c") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"
    assert clean_text("a\0b", "") == "ab"
    assert clean_text("naïve 🙂") == "naïve 🙂"


@given(st.text(alphabet=st.characters(codec=None)))
def test_clean_text_can_always_be_encoded(text: str) -> None:
    cleaned = clean_text(text)
    assert "\0" not in cleaned.encode().decode()
    assert len(cleaned) == len(text)


def test_fold_text_ignores_case_and_white_space() -> None:
    assert fold_text("  Straße\n am  Meer ") == "strasse am meer"


def test_words_of_scripts_without_spaces_are_characters() -> None:
    assert split_words("Postgres 18 と京都") == ["postgres", "18", "と", "京", "都"]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Dr. Chen left. We stayed.", ["Dr. Chen left.", "We stayed."]),
        ("See no. 5 on p. 7. Then go.", ["See no. 5 on p. 7.", "Then go."]),
        ("Plan B. We use it.", ["Plan B.", "We use it."]),
        ("One line\nanother line", ["One line", "another line"]),
        ("終わった。始まる。", ["終わった。", "始まる。"]),
        ('She said "no." Then she left.', ['She said "no."', "Then she left."]),
        ("", []),
    ],
)
def test_sentences_end_at_stops_and_lines_but_not_at_abbreviations(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@given(st.text())
def test_sentence_spans_are_in_order_and_inside_the_text(text: str) -> None:
    offsets = [offset for span in find_sentence_spans(text) for offset in span]
    assert offsets == sorted(offsets)
    assert all(0 <= offset <= len(text) for offset in offsets)
