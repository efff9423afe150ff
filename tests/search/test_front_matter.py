"""Front matter of a note is found by its words, but neither embedded nor shown."""

from __future__ import annotations

import pytest

from rem.app import Rem
from rem.models import Resource

_NOTE = "---\ntags: [harbour]\naliases: [Skagen trip]\n---\n# Sailing\n\nWe leave at six.\n"


async def shown(rem: Rem, query: str) -> list[str]:
    return [row.shown_text.strip() for row in (await rem.for_user("alice").query(query)).hits]


async def test_front_matter_is_not_shown(rem: Rem) -> None:
    await rem.for_user("alice").store.upsert(Resource(name="Sailing", content=_NOTE))
    assert await shown(rem, 'SEARCH "when do we leave"') == ["# Sailing\n\nWe leave at six."]
    assert await shown(rem, 'SEARCH "harbour" MODE text') == ["# Sailing\n\nWe leave at six."]


@pytest.mark.parametrize("text", ["---\ntags: [harbour]\n---\n", "--- no front matter, harbour ---", "---\nharbour"])
async def test_text_without_a_body_is_shown_whole(rem: Rem, text: str) -> None:
    await rem.for_user("alice").store.upsert(Resource(name="Odd", content=text))
    assert await shown(rem, 'SEARCH "harbour" MODE text') == [text.strip()]
