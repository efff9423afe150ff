"""What REM knows about itself: topics for people and agents. They are no rows, so no search finds them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class HelpTopic:
    """One topic: its name, title and text."""

    name: str
    title: str
    text: str


@cache
def load_help_topics() -> tuple[HelpTopic, ...]:
    """Return all topics, the most general first."""
    import yaml

    topics = yaml.safe_load((files("rem.tools") / "help.yaml").read_text(encoding="utf-8"))
    return tuple(HelpTopic(topic["name"], topic["title"], topic["text"].strip()) for topic in topics)
