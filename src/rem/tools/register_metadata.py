"""register_metadata: an agent's notes on its answer."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rem.tools.env import ToolEnv
from rem.tools.note import Confidence, Keys, Note, RiskLevel, RiskScore, SessionName, checked
from rem.tools.session_name import name_session


async def register_metadata(
    env: ToolEnv,
    confidence: Annotated[
        Confidence | None, Field(description="How sure you are: 0 is a guess, 1 is certain and read from memory.")
    ] = None,
    references: Annotated[Keys | None, Field(description="Keys of what the answer is about.")] = None,
    sources: Annotated[Keys | None, Field(description="Keys or places that the answer was taken from.")] = None,
    flags: Annotated[Keys | None, Field(description="What needs attention, such as needs_review.")] = None,
    risk_level: Annotated[RiskLevel | None, Field(description="How much is at stake if the answer is wrong.")] = None,
    risk_score: Annotated[RiskScore | None, Field(description="The same as a number, 100 the worst.")] = None,
    session_name: Annotated[
        SessionName | None, Field(description="A title for the conversation, in a few words; given once.")
    ] = None,
    extra: Annotated[dict[str, Any] | None, Field(description="Anything else worth remembering, as JSON.")] = None,
) -> dict[str, Any]:
    """Take notes on your answer: how sure you are, which keys it rests on, what else should be remembered.

    What tools return is forgotten after this turn; only your notes and your answer stay in the conversation. So call
    this once in every turn in which you searched, before your final words, and put findings that you will need again
    into extra. To store a lasting document use ingest_into_rem instead; to ask the user something, action.
    For example: register_metadata(confidence=0.9, sources=["sarah-chen", "q3-report"], session_name="Q3 planning",
    extra={"decision": "ship hybrid search first"})
    """
    values = {
        "confidence": confidence,
        "references": references,
        "sources": sources,
        "flags": flags,
        "risk_level": risk_level,
        "risk_score": risk_score,
        "session_name": session_name,
        "extra": extra,
    }
    note = checked(Note, values, "The note")
    if note.session_name:
        await name_session(env, note.session_name)
    await env.emit(note.event(env.context.session_id))
    return {"status": "success", "_metadata_event": True, **note.given()}
