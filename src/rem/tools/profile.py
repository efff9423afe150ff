"""The profile of who is asking: a row of their own in `users`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rem.dreaming.profiles.user_row import find_user_rows, load_user_record

if TYPE_CHECKING:
    from rem.tools.env import ToolEnv


async def load_own_profile(env: ToolEnv) -> dict[str, Any] | None:
    """The caller's row, known by their e-mail address or id. What others wrote of them is not it."""
    names = [name for name in (env.context.user_email, env.context.user_id) if name]
    store = env.rem.store(env.scope)
    answers = await store.find_matches(names, "users") if names else []
    found = next((answer.record for answer in answers if answer.record.get("user_id") == env.scope.user_id), None)
    if found is not None or env.context.user_id is None:
        return found
    # The id is made from an address that the caller did not give; the row may have it.
    live = [row for row in await find_user_rows(store) if not row.is_deleted]
    return await load_user_record(store, live[0].id) if live else None
