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
        return _described(profile, env.context.user_id)
    return f"User ID: {env.context.user_id}. To load user profile: Use REM LOOKUP users/{profile['key']}"


def _described(profile: Mapping[str, Any], user_id: str | None) -> str | None:
    details = (profile.get("metadata") or {}).get("profile")
    details = details if isinstance(details, Mapping) else {}
    # Who has not said a name is called by the id, which says nothing.
    facts = {
        "Name": None if profile.get("name") == user_id else profile.get("name"),
        "Role": profile.get("role"),
        "About": profile.get("summary"),
        "What the user said of themself": _listed(details.get("about")),
        "Interests": _listed(profile.get("interests")),
        "Preferred topics": _listed(profile.get("preferred_topics")),
        "Current projects": _listed(details.get("current_projects")),
        "People the user speaks of": _listed(details.get("people")),
        "How the user wants things done": _listed(details.get("preferences"), " | "),
    }
    lines = [f"{name}: {value}" for name, value in facts.items() if value]
    return "\n".join(["You talk to this user:", *lines]) if lines else None


def _listed(values: object, between: str = ", ") -> str:
    """The texts of a list; what is in a profile may have been written by hand."""
    return between.join(value for value in values if isinstance(value, str)) if isinstance(values, list) else ""
