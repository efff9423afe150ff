"""Content words are chosen by stop words and rarity."""

from __future__ import annotations

from rem.dreams.text.words import compute_rarity, extract_content_words


def test_content_words_leave_out_stop_words() -> None:
    assert list(extract_content_words("Hi! Thanks, I really think that the Postgres migration was great.")) == [
        "postgres",
        "migration",
    ]
    assert list(extract_content_words("来月、東京の会議で")) == ["来月", "東京", "会議"]
    assert list(extract_content_words("")) == list(extract_content_words("... 42 !!")) == []


def test_rarity_orders_words_by_frequency() -> None:
    assert compute_rarity("the") == 0
    assert (
        compute_rarity("the")
        < compute_rarity("table")
        < compute_rarity("greenhouse")
        <= compute_rarity("xylographically")
        == 1
    )
