"""Tool results are cut to a size that a model can read."""

from __future__ import annotations

import json

from rem import Rem
from rem.db.store import Store
from rem.models import Moment, Resource
from rem.tools.search import lookup, search_rem
from rem.tools.trimming import MAX_RESULT_CHARS, fit_to_budget
from tests.tools.tool_env import env_for

ALICE, BOB = "alice@example.com", "bob@example.com"


async def test_empty_and_internal_columns_are_dropped(rem: Rem, alice: Store) -> None:
    await alice.upsert(Moment(name="Kick-off", summary="It began.", topic_tags=["launch"]))
    (row,) = (await lookup(env_for(rem, ALICE), "kick-off"))["results"]
    assert row["table"] == "moments"
    assert row["topic_tags"] == ["launch"]
    assert not {"id", "embedding", "tenant_id", "user_id", "deleted_at", "emotion_tags", "metadata"} & set(row)


async def test_columns_of_a_select_are_kept(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Note", content="", category=None))
    (row,) = (await search_rem(env_for(rem, ALICE), "SELECT user_id, content, category FROM resources"))["results"]
    assert row == {"user_id": alice.scope.user_id, "content": "", "category": None}


async def test_result_has_a_size_limit_and_notes_dropped_rows(rem: Rem, alice: Store) -> None:
    await alice.upsert_many([Resource(name=f"note {number}", content="word " * 2000) for number in range(90)])
    columns = ", ".join(f"content AS content_{number}" for number in range(5))
    answer = await search_rem(env_for(rem, ALICE), f"SELECT key, {columns} FROM resources LIMIT 90")
    assert len(json.dumps(answer)) <= MAX_RESULT_CHARS
    assert answer["count"] == 90
    assert 10 < len(answer["results"]) < 90
    (note,) = answer["notes"]
    assert note["code"] == "rows_cut"
    assert f"{len(answer['results'])} of 90 rows" in note["text"]


def test_row_with_too_many_fields_is_shrunk() -> None:
    metadata = {f"field {number}": "x" * 100 for number in range(2000)}
    answer = fit_to_budget({"results": [{"table": "resources", "key": "n", "metadata": metadata}], "count": 1})
    assert len(json.dumps(answer)) <= MAX_RESULT_CHARS
    row = answer["results"][0]
    assert row["key"] == "n"
    assert row["metadata"].startswith('{"field 0":"xxx')
    select = fit_to_budget(
        {"results": [{"record": "a text", "numbers": list(range(100)), "wide": {"x": ["y" * 900] * 90}}]}
    )
    assert len(json.dumps(select)) <= MAX_RESULT_CHARS
