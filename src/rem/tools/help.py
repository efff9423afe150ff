"""What REM knows about itself: topics for people and agents. They are no rows, so no search finds them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from rem.text import collapse_spaces

MAX_QUESTION_CHARS = 200
"""A longer message is not a question about REM alone."""
_LEAD = r"(?:(?:hi|hello|hey|ok|okay|so|and|please|rem) )*(?:(?:can|could) you (?:please )?(?:tell me|explain) )?"
_ABOUT_USE = re.compile(
    rf"{_LEAD}(?:how|where) (?:do|can|could|should) (?:i|we|you) .+ (?:in|with|using|to|into|from) rem"
)


@dataclass(frozen=True, slots=True)
class HelpTopic:
    """One topic: its name, title and text, and the pattern of the questions that it answers."""

    name: str
    title: str
    text: str
    pattern: re.Pattern[str]


@cache
def load_help_topics() -> tuple[HelpTopic, ...]:
    """Return all topics, the most general first."""
    import yaml

    topics = yaml.safe_load((files("rem.tools") / "help.yaml").read_text(encoding="utf-8"))
    return tuple(
        HelpTopic(
            topic["name"],
            topic["title"],
            topic["text"].strip(),
            re.compile(f"{_LEAD}(?:{'|'.join(topic['questions'])})"),
        )
        for topic in topics
    )


def answer_about_rem(question: str) -> str | None:
    """Return the answer to a question about REM itself; None if it asks something else.

    The question must be about nothing else: "How do I delete a session?" is, "How do I delete the branch?" is not.
    """
    if len(question) > MAX_QUESTION_CHARS:
        return None
    plain = collapse_spaces(re.sub(r"[^\w\s]", " ", re.sub(r"['’]", "", question))).casefold()
    topics = load_help_topics()
    for topic in topics:
        if topic.pattern.fullmatch(plain):
            return topic.text
    return list_topics() if _ABOUT_USE.fullmatch(plain) else None


def list_topics() -> str:
    """Return the titles of all topics, for a question that fits none of them."""
    titles = "\n".join(f"- {topic.title}" for topic in load_help_topics())
    return f"I know about these parts of REM:\n\n{titles}\n\n`rem --help` lists all commands."
