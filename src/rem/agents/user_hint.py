"""What a model is told of the user it talks to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rem.tools.profile import own_profile

if TYPE_CHECKING:
    from rem.tools.env import ToolEnv


async def user_hint(env: ToolEnv, *, with_profile: bool, can_look_up: bool) -> str | None:
    """Who the user is: how to look the profile up, or the profile itself; None if there is none."""
    if env.memory is None or not (with_profile or can_look_up):
        return None
    profile = await own_profile(env)
    if profile is None:
        return None
    if with_profile:
        return _described(profile)
    return f"User ID: {env.context.user_id}. To load user profile: Use REM LOOKUP users/{profile['key']}"


def _described(profile: Mapping[str, Any]) -> str:
    facts = {
        "Name": profile.get("name"),
        "Role": profile.get("role"),
        "About": profile.get("summary"),
        "Interests": ", ".join(profile.get("interests") or ()),
        "Preferred topics": ", ".join(profile.get("preferred_topics") or ()),
    }
    lines = [f"{name}: {value}" for name, value in facts.items() if value]
    return "\n".join(["You talk to this user:", *lines])
