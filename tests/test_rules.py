"""Word lists and patterns of all languages can be read by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rem import rules
from rem.rules import LANGUAGES, alternatives, word_set, word_sets


def test_word_list_has_words_of_all_languages() -> None:
    assert {"not", "nicht", "pas"} <= word_set("tags.negations")


def test_pattern_list_is_one_group() -> None:
    pattern = re.compile(rf"{alternatives('masking.please_words')}\Z")
    assert pattern.match("please")
    assert pattern.match("bitte")
    assert not pattern.match("perhaps")


def test_section_of_word_lists_is_merged_by_entry() -> None:
    emotions = word_sets("tags.emotions")
    assert {"happy", "glücklich", "feliz"} <= emotions["joy"]
    assert emotions["hope"] == word_set("tags.emotions.hope")


def test_unknown_list_raises_key_error() -> None:
    with pytest.raises(KeyError, match=r"tags\.colours"):
        word_set("tags.colours")


def test_every_file_is_a_known_language() -> None:
    files = Path(str(rules.__file__)).parent.glob("*.yaml")
    assert {file.stem for file in files} == set(LANGUAGES)
