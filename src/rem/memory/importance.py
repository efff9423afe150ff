"""Which messages are worth keeping verbatim: decisions and key facts, by the plain words that people say them with."""

from __future__ import annotations

import re

_DECISION = (
    r"\b(?:we|i)(?:'ve| have| finally)? (?:decided|agreed|chose|settled on|opted)\b",
    r"\b(?:we|i)(?:'ll| will) (?:go with|use|stick (?:with|to)|switch to)\b",
    r"\b(?:the |our |my )?(?:final )?decision(?: is|:| was)",
    r"\blet(?:'s|’s| us) (?:go with|use|stick (?:with|to)|switch to)\b",
    r"\b(?:approved|signed off|deal)\b[.!]",
)
_KEY_FACT = (
    r"\b(?:remember|note|keep in mind|don'?t forget)(?: that|:| this)",
    r"\bfor the record\b",
    r"\b(?:it is |it's |this is |very )?important(?:ly)?(?: that|:|,| to (?:know|remember|note))",
    r"\bmy (?:full )?(?:name|birthday|address|phone(?: number)?|e-?mail(?: address)?|allerg(?:y|ies)|job|employer|"
    r"wife|husband|partner|daughter|son|doctor) (?:is|are)\b",
    r"\bi(?:'m| am) (?:allergic|vegetarian|vegan|diabetic|pregnant)\b",
    r"\bi (?:always|never) \w+",
    r"\bthe deadline (?:is|was moved)\b",
    r"\bdue (?:on|by) \w+",
)
_PATTERN = re.compile("|".join((*_DECISION, *_KEY_FACT)), re.IGNORECASE)
_READ = 20_000
"""In characters: what matters is said early, and a pasted book must not keep the process busy."""


def is_important(text: str) -> bool:
    """Whether the text says a decision or a key fact."""
    return _PATTERN.search(text[:_READ].replace("’", "'")) is not None
