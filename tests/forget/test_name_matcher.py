"""A mention is the name as whole words, in any case and Unicode spelling."""

from __future__ import annotations

import pytest

from rem.errors import InvalidInputError
from rem.forget.name_matcher import NameMatcher


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Sarah Chen", "I met SARAH CHEN today."),
        ("Sarah Chen", "see sarah-chen and sarah_chen_notes"),
        ("Sarah Chen", "class SarahChen:"),
        ("Sarah Chen", "Sarah\nChen's idea"),
        ("sarah-chen", "(Sarah Chen)"),
        ("Müller", "Frau M\u0075\u0308ller kam"),
        ("Straße", "in der STRASSE"),
        ("İpek", "i\u0307pek geldi"),
        ("Zoë", "ZOË!"),
        ("张伟", "我昨天和张伟说话"),
        ("Ольга", "с ОЛЬГА, вчера"),
        ("sarah@example.com", "Write to Sarah@Example.com."),
        ("C++", "I write C++ daily"),
        ("Ada", "co\u00ador A\u00adda"),
    ],
)
def test_name_matches_whole_words(name: str, text: str) -> None:
    assert NameMatcher([name]).occurs_in(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Ada", "Adapters and Canada"),
        ("Zoe", "Zoë is somebody else"),
        ("Sarah Chen", "Sarah and Chen"),
        ("Sarah Chen", "Sarah Cheng"),
        ("sarah@example.com", "not.sarah@example.com"),
        ("sarah@example.com", "sarah@example.com.au"),
        ("Ольга", "Ольгаград"),
        ("Ada", ""),
    ],
)
def test_name_does_not_match_parts_of_words(name: str, text: str) -> None:
    assert not NameMatcher([name]).occurs_in(text)


def test_name_is_found_in_json_with_excerpt() -> None:
    names = NameMatcher(["Ada"])
    value = {"a": [{"deep": "x" * 200 + " Ada " + "y" * 200}]}
    assert names.occurs_in_json(value)
    assert "Ada" in names.excerpt(value)
    assert len(names.excerpt(value)) < 150
    assert names.occurs_in_json({"ada": 1})


def test_spellings_of_a_name_match() -> None:
    names = NameMatcher(["Sarah Chen"])
    assert all(map(names.matches, ("sarah-chen", "SARAH_CHEN", "SarahChen", " sarah  chen ")))
    assert not names.matches("Sarah Chen's team")


@pytest.mark.parametrize("nothing", ["", "  ", "\u200b"])
def test_empty_names_are_rejected(nothing: str) -> None:
    with pytest.raises(InvalidInputError, match="Give a name or a key to forget"):
        NameMatcher([nothing])
