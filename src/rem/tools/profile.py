"""The caller's own profile: the caller's row in `users`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rem.dreams.profiles.user_row import find_user_rows, load_user_record

if TYPE_CHECKING:
    from rem.tools.env import ToolEnv


async def load_own_profile(env: ToolEnv) -> dict[str, Any] | None:
    """Return the caller's own row in `users`, or None. Rows that others wrote about the caller are ignored."""
    names = [name for name in (env.context.user_email, env.context.user_id) if name]
    store = env.rem.for_user(env.scope).store
    matches = await store.find_matches(names, "users") if names else []
    record = next((match.record for match in matches if match.record.get("user_id") == env.scope.user_id), None)
    if record is not None or env.context.user_id is None:
        return record
    # The user id may be derived from an e-mail address that is only in the row.
    live = [row for row in await find_user_rows(store) if not row.is_deleted]
    return await load_user_record(store, live[0].id) if live else None


async def load_shared_profile(env: ToolEnv) -> dict[str, Any] | None:
    """Return the shared row in `users` that has the caller's e-mail address or id, or None."""
    names = [name for name in (env.context.user_email, env.context.user_id) if name]
    matches = await env.rem.for_user(env.scope).store.find_matches(names, "users") if names else []
    return next((match.record for match in matches if match.record.get("user_id") is None), None)
