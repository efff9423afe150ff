"""rem_key normalises labels to keys."""

from __future__ import annotations

import re

import asyncpg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rem.db.repository import RowError
from rem.db.store import Store
from rem.errors import InvalidInputError
from rem.models import Resource

_EXAMPLES = {
    "Mood Disorder": "mood-disorder",
    "mood_disorder": "mood-disorder",
    "MoodDisorder": "mood-disorder",
    "  mood   disorder ": "mood-disorder",
    "mood-disorder": "mood-disorder",
    "--mood__disorder--": "mood-disorder",
    "Mood\t\n Disorder": "mood-disorder",
    "docs://getting-started.md": "docs://getting-started.md",
    "docs://Getting_Started.md": "docs://getting_started.md",
    "https://example.com/A Page": "https://example.com/a-page",
    "sarah@example.com": "sarah@example.com",
    " Sarah@Example.com ": "sarah@example.com",
    "john_doe@x.com": "john_doe@x.com",
    "write to john_doe@x.com": "write-to-john-doe@x.com",
    "HTTPServer": "http-server",
    "parseHTTPServer": "parse-http-server",
    "OpenAI": "open-ai",
    "GPT4": "gpt4",
    "O'Brien": "o'brien",
    "C++": "c++",
    "report.pdf": "report.pdf",
    "users/Sarah Chen": "users/sarah-chen",
    "42": "42",
    # Unicode
    "Zoë": "zoë",
    "ZOË": "zoë",
    "Zoe\u0308": "zoë",
    "ËmileZola": "ëmile-zola",
    "Caf\u00e9Bar": "café-bar",
    "Cafe\u0301Bar": "café-bar",
    "İstanbul": "istanbul",
    "İ\u0301": "í",
    "ΟΔΟΣ": "οδοσ",
    "οδος": "οδοσ",
    "Straße": "straße",
    "ＦＵＬＬ　ｗｉｄｔｈ": "full-width",
    "ﬁne print": "fine-print",
    "東京 タワー": "東京-タワー",
    "ﾄｳｷｮｳ": "トウキョウ",
    "party 🎉 time": "party-🎉-time",
    "👩‍👩‍👧": "👩‍👩‍👧",
    "Mood\u00a0Disorder": "mood-disorder",
    "Mood\u2003Disorder": "mood-disorder",
    "mood\u200b-disorder": "mood-disorder",
    "\ufeffmood disorder": "mood-disorder",
    "mood-dis\u00adorder": "mood-disorder",
    # Nothing readable
    "": "",
    " \t_-_ ": "",
    "\u200b": "",
}


async def test_labels_become_the_expected_keys(sql: asyncpg.Connection[asyncpg.Record]) -> None:
    rows = await sql.fetch("SELECT label, rem_key(label) FROM unnest($1::text[]) label", list(_EXAMPLES))
    assert dict(map(tuple, rows)) == _EXAMPLES


async def test_null_label_has_no_key(sql: asyncpg.Connection[asyncpg.Record]) -> None:
    assert await sql.fetchval("SELECT rem_key(NULL)") is None


_storable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
_tricky = st.text(
    st.sampled_from("aAbB zZ_-@/:.\u0130\u0301\u0307\u0345ΣσςßẞǅÅ\u212b\u00a0\u200b\u00b4ŀ\uff20🅐🄰Ⓐ\u2126ﷺ\U0001d400")
)
_quick = settings(
    max_examples=400, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@_quick
@given(label=_storable | _tricky)
@example(label="--@b_c")
@example(label="a_c@-")
@example(label="ŀ://x_y")
@example(label="A🅐")
@example(label="İ\u0301")
async def test_normalisation_is_idempotent(label: str, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    key = await sql.fetchval("SELECT rem_key($1)", label)
    assert await sql.fetchval("SELECT rem_key($1)", key) == key


@_quick
@given(label=st.text(st.sampled_from("abcXYZ019 _-\t\n\u00a0\u200bëË東🎉"), min_size=1))
async def test_key_of_a_plain_label_is_lower_case_words_joined_by_single_hyphens(
    label: str, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    key = await sql.fetchval("SELECT rem_key($1)", label)
    assert re.fullmatch(r"([a-z0-9ë東🎉]+(-[a-z0-9ë東🎉]+)*)?", key)
    # Nothing but separators is lost.
    assert key.replace("-", "") == re.sub(r"[\s_\u200b-]", "", label).lower()


@_quick
@given(words=st.lists(st.text("abcdefë東", min_size=1), min_size=1))
async def test_spellings_of_the_same_words_give_one_key(
    words: list[str], sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    spellings = [" ".join(words), "_".join(words), "-".join(words), "  ".join(words).upper(), f"\t{' - '.join(words)} "]
    keys = await sql.fetchval("SELECT array_agg(rem_key(label)) FROM unnest($1::text[]) label", spellings)
    assert set(keys) == {"-".join(words)}


async def test_key_of_1000_characters_is_stored_and_found(alice: Store) -> None:
    name = "Long " * 199 + "label"
    stored = await alice.upsert(Resource(name=name))
    assert stored.key is not None
    assert len(stored.key) == len(name) == 1000
    assert [entity.id for entity in await alice.lookup(name)] == [stored.id]
    assert [entity.id for entity in await alice.lookup(stored.key)] == [stored.id]


def test_key_of_1000_wide_characters_is_refused_with_advice() -> None:
    with pytest.raises(ValidationError, match=r"name\n.* longer than 1,024 bytes: use a short label"):
        Resource(name="🎉" * 1000)


@pytest.mark.parametrize("batch_size", [1, 250])
async def test_key_that_grows_too_long_when_normalised_is_refused(alice: Store, batch_size: int) -> None:
    resources = [Resource(name=f"r{number}") for number in range(batch_size - 1)]
    with pytest.raises(RowError, match="1 to 1,024 bytes once normalised") as refused:
        await alice.upsert_many([*resources, Resource(name="ﷺ" * 300)])
    assert refused.value.row == batch_size - 1
    assert await alice.count(Resource) == 0


@pytest.mark.parametrize("name", ["", " ", "\t\n", "-", "_ - _"])
def test_label_of_separators_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="no letter or digit, so no key"):
        Resource(name=name)


@pytest.mark.parametrize("name", ["\u200b", "\u00a0_", "\u3000\ufeff"], ids=ascii)
async def test_label_of_invisible_characters_is_refused(alice: Store, name: str) -> None:
    with pytest.raises(
        (InvalidInputError, ValidationError), match=r"key must have 1 to 1,024 bytes|no letter or digit"
    ):
        await alice.upsert(Resource(name=name))
