"""The prompts that an MCP client shows in its menu."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

_MOMENTS_WITHIN = (
    "SELECT key, name, summary, starts_timestamp FROM moments "
    "WHERE starts_timestamp >= '2026-03-01' AND starts_timestamp < '2026-04-01' ORDER BY starts_timestamp"
)


def recall(topic: Annotated[str, Field(description="A subject, a project, a name.")]) -> str:
    """Tell me what you remember about a topic."""
    return f"""\
Tell me everything that my memory holds about: {topic}

Look it up as a name first (lookup, then fuzzy), then search by meaning (search_rem with SEARCH, at least two wordings),
and follow the connections of what you find (traverse). Answer in short paragraphs, the most important first, with dates
where they are known and the keys you used in brackets. Say plainly what is not known."""


def prepare_meeting(
    person: Annotated[str, Field(description="Whom you meet: a name or an e-mail address.")],
    subject: Annotated[str, Field(description="What it is about, if that is known.")] = "",
) -> str:
    """Prepare me for a meeting with a person."""
    about = f" about {subject}" if subject else ""
    return f"""\
Prepare me for a meeting with {person}{about}.

Find the person (lookup, else fuzzy), what they are connected with (traverse, depth 1, both directions), and what
happened lately with them (search_rem: SEARCH with the name FROM moments, then without a table). Then write:
1. who they are, in two sentences;
2. what we last spoke about, and what was decided or promised, with dates;
3. open questions, and three good ones to ask.
Put the keys you used in brackets. Do not guess what memory does not say."""


def what_happened(
    period: Annotated[str, Field(description="Such as: last week, March 2026, since the launch.")],
) -> str:
    """Tell me what happened in a period."""
    return f"""\
What happened in this period: {period}?

Turn it into a first and a last day, and ask for the moments within it (search_rem):
{_MOMENTS_WITHIN}
Then search the rest of memory for what belongs to them. Tell it in order of time, grouped by subject, with the keys in
brackets; end with two sentences on what mattered most."""


def take_notes(subject: Annotated[str, Field(description="What the notes are about.")]) -> str:
    """Keep notes of what we are talking about."""
    return f"""\
Take notes on {subject} from our conversation so far, and keep them in my memory.

First look for notes of that name (lookup). Write facts, decisions with their reasons, open questions and next steps,
each as one line that can be understood without the conversation. Show me the notes; when I agree, keep them with
ingest_into_rem (category "note", a short name with today's date, fitting tags), and tell me their key."""


def write_agent(purpose: Annotated[str, Field(description="What the agent shall do for you.")]) -> str:
    """Write an agent of my own."""
    return f"""\
Write a REM agent for me that does this: {purpose}

Read rem://agents to see what exists (if one does it already, say so), and rem://agents/rem as an example of the form.
Ask me at most two questions if something important is open. Then write the YAML: a name in kebab-case, instructions
that say what it does, how it uses memory and when it says that it does not know, and only the tools that it needs.
Show it to me; when I agree, keep it with save_agent, and correct what that refuses."""


PROMPTS = (recall, prepare_meeting, what_happened, take_notes, write_agent)
