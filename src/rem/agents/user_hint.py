"""What a model is told of the user it talks to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rem.models import User

if TYPE_CHECKING:
    from rem.tools.env import ToolEnv


async def user_hint(env: ToolEnv, *, with_profile: bool) -> str | None:
    """Who the user is: how to look the profile up, or the profile itself."""
    user_id = env.context.user_id
    if user_id is None or env.memory is None:
        return None
    if with_profile:
        known = await env.rem.store_for(env.scope).lookup(user_id, table="users")
        if known and isinstance(known[0], User):
            return _profile(known[0])
    return f"User ID: {user_id}. To load user profile: Use REM LOOKUP users/{user_id}"


def _profile(user: User) -> str:
    facts = {
        "Name": user.name,
        "Role": user.role,
        "About": user.summary,
        "Interests": ", ".join(user.interests),
        "Preferred topics": ", ".join(user.preferred_topics),
    }
    lines = [f"{name}: {value}" for name, value in facts.items() if value]
    return "\n".join(["You talk to this user:", *lines])
