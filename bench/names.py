"""Measure how well names are found in the labelled texts of the tests, and how fast.

`python -m bench.names` prints JSON: precision and recall of the tagger for each kind and part, and its throughput.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from rem.knowledge.tagger import ORGANIZATION, PERSON, PLACE, TaggedName, get_tagger

PARTS = ("open", "held_out")
SPEED_MESSAGES = 600
_FOLDER = Path(__file__).parent.parent / "tests" / "dreams" / "labelled"
_NAME = re.compile(r"\[([^\]|]+)\|([pol])\]")
_KINDS = {"p": PERSON, "o": ORGANIZATION, "l": PLACE}
Span = tuple[int, int, str]
"""Start, end and kind of a name."""


def load_texts(part: str) -> Iterator[tuple[str, str, set[Span]]]:
    """Yield each text of a part with its domain and the names in it."""
    domains = yaml.safe_load((_FOLDER / f"names_{part}.yaml").read_text(encoding="utf-8"))
    for domain, marked in ((domain, text) for domain, texts in domains.items() for text in texts):
        text, spans, last = "", set(), 0
        for match in _NAME.finditer(marked):
            text += marked[last : match.start()]
            spans.add((len(text), len(text) + len(match[1]), _KINDS[match[2]]))
            text, last = text + match[1], match.end()
        yield domain, text + marked[last:], spans


async def score(part: str, min_confidence: float = 0.0) -> tuple[dict[str, Any], list[str]]:
    """Return precision and recall for each kind and each domain, and the errors."""
    cases = list(load_texts(part))
    found = await get_tagger().find_names([text for _, text, _ in cases])
    counts: dict[str, Counter[str]] = {}
    errors = []
    for (domain, text, wanted), names in zip(cases, found, strict=True):
        have = {_span(name) for name in names if name.confidence >= min_confidence}
        for label in (*_KINDS.values(), "all", domain):
            kinds = set(_KINDS.values()) if label in ("all", domain) else {label}
            own, want = ({span for span in spans if span[2] in kinds} for spans in (have, wanted))
            counts.setdefault(label, Counter()).update(right=len(own & want), found=len(own), wanted=len(want))
        if have != wanted:
            wrong, missed = ([(text[a:b], kind) for a, b, kind in sorted(s)] for s in (have - wanted, wanted - have))
            errors.append(f"{text!r} wrong {wrong} missed {missed}")
    figures = {
        label: {
            "precision": round(count["right"] / max(1, count["found"]), 3),
            "recall": round(count["right"] / max(1, count["wanted"]), 3),
            "names": count["wanted"],
        }
        for label, count in counts.items()
    }
    return figures, errors


def _span(name: TaggedName) -> Span:
    return name.start, name.end, name.kind


async def measure_speed() -> float:
    """Return how many messages of 60 words are read in a second."""
    words = " ".join(text for part in PARTS for _, text, _ in load_texts(part)).split()
    messages = [" ".join(words[start % 900 : start % 900 + 60]) for start in range(0, SPEED_MESSAGES * 7, 7)]
    await get_tagger().find_names(messages[:20])
    started = time.perf_counter()
    await get_tagger().find_names(messages)
    return len(messages) / (time.perf_counter() - started)


async def run() -> dict[str, Any]:
    """Return all figures. The errors of the held-out part are not shown."""
    figures: dict[str, Any] = {part: (await score(part))[0] for part in PARTS}
    return figures | {"messages_per_second": round(await measure_speed())}


def main() -> None:
    """Print the figures."""
    json.dump(asyncio.run(run()), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
