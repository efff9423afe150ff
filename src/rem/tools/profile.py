"""The profile of who is asking: a row of their own in `users`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rem.tools.env import ToolEnv


async def own_profile(env: ToolEnv) -> dict[str, Any] | None:
    """The caller's row, known by their e-mail address or id. What others wrote of them is not it."""
    names = [name for name in (env.context.user_email, env.context.user_id) if name]
    answers = await env.rem.store_for(env.scope).answers(names, "users") if names else []
    return next((answer.record for answer in answers if answer.record.get("user_id") == env.scope.user_id), None)
