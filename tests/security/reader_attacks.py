"""Find texts that make a function slow which reads what somebody wrote.

Run as a script, this prints each slow function as a line of JSON. The test runs it in a process of its own.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from rem.answers.tables import AskedRow
from rem.dreams.claims import ClaimSource, RowRef
from rem.dreams.profiles.self_statements import extract_self_statements
from rem.forget.name_matcher import NameMatcher
from rem.privacy.policy import PrivacyPolicy
from rem.settings.security import PrivacySettings
from rem.text import compile_bounded
from tests.security.pattern_attacks import Attack, TimeOver, measure, stop

MODULES = (
    "rem.agents.decisions",
    "rem.agents.memory_run",
    "rem.answers",
    "rem.dreams.entities",
    "rem.dreams.moments",
    "rem.dreams.ontology",
    "rem.dreams.profiles",
    "rem.dreams.text",
    "rem.forget",
    "rem.ingest.chunks",
    "rem.ingest.readers.markdown",
    "rem.sessions",
    "rem.message_kinds",
    "rem.privacy",
    "rem.query",
    "rem.search",
    "rem.knowledge",
    "rem.text",
    "rem.tools.help",
)
"""Modules and packages that read texts of users."""
WORDS = (
    *(
        " ",
        "\n",
        "-",
        "a",
        "A",
        "0",
        ".",
        "'",
        '"',
        "“",
        "`",
        "*",
        "_",
        "(",
        "[[",
        "](",
        "{",
        "|",
        "?",
        "@",
        "/",
        "中",
        "\u0301",
    ),
    *(
        "a ",
        "A ",
        "Aa ",
        "Aa, ",
        "a. ",
        "1 ",
        "1.",
        "a@b.c ",
        "http://a ",
        "a-",
        "yes ",
        "no, ",
        "not ",
        "is ",
        "who is A ",
        "my ",
        "I am A ",
    ),
    *(
        "and ",
        "to ",
        "> x\n",
        "# x\n",
        "- x\n",
        "a: b\n",
        "|a|b|\n",
        "---\n",
        "```\n",
        "x\n\n",
        "password is ",
        "2024-01-01 ",
        "last week ",
    ),
    *("What about A? ", "I live in A. ", "A works at B. ", "My sister A and "),
)
NOW = datetime(2024, 5, 6, tzinfo=UTC)
SHORT, PROBE, LONG = 1_000, 4_000, 32_000
FAST_SECONDS = 0.002
MAX_GROWTH = 2.5


class Reader(NamedTuple):
    """A function that reads a text."""

    name: str
    call: Callable[[str], Any]


ARGUMENTS: dict[str, Callable[[str], Any]] = {
    "str": lambda text: text,
    "Sequence[str]": lambda text: [text, text],
    "Iterable[str]": lambda text: [text, text],
    "Collection[str]": lambda text: [text, text],
    "int": lambda text: 100,
    "bool": lambda text: True,
    "datetime": lambda text: NOW,
    "date": lambda text: NOW.date(),
    "TimePhrase | None": lambda text: None,
}
"""What a function of a text is called with, by the type of the parameter."""


def find_readers() -> Iterator[Reader]:
    """Yield the public functions that read texts."""
    for name in MODULES:
        top = importlib.import_module(name)
        inner = [info.name for info in pkgutil.iter_modules(getattr(top, "__path__", []), f"{name}.")]
        for module in (top, *map(importlib.import_module, inner)):
            for function in list(vars(module).values()):
                is_function = inspect.isfunction(function) or hasattr(function, "cache_info")
                # The text that `compile_bounded` reads is a pattern of the package: pattern_attacks.py measures it.
                is_function = is_function and function is not compile_bounded
                is_public = is_function and function.__module__ == module.__name__ and function.__name__[0] != "_"
                if is_public and (call := _make_call(function)):
                    yield Reader(f"{module.__name__}.{function.__name__}", call)
    yield Reader("AskedRow.write", lambda text: AskedRow([text], [text, text]).write())
    yield Reader("NameMatcher.excerpt", NameMatcher(["Ada Lin", "ada-lin"]).excerpt)
    source = ClaimSource(RowRef("messages", UUID(int=1)), "message")
    yield Reader("extract_self_statements", lambda text: extract_self_statements([(text, NOW, source)]))
    yield Reader("PrivacyPolicy.mask", PrivacyPolicy.from_settings(PrivacySettings()).mask)


def _make_call(function: Any) -> Callable[[str], Any] | None:
    """Return a function of one text that calls another one; None if that one needs something else."""
    needed = {
        name: str(one.annotation)
        for name, one in inspect.signature(function).parameters.items()
        if one.default is one.empty and one.kind is not one.VAR_POSITIONAL
    }
    is_text = any("str" in annotation for annotation in needed.values())
    if inspect.iscoroutinefunction(function) or not is_text or not ARGUMENTS.keys() >= set(needed.values()):
        return None
    names = [name for name, one in inspect.signature(function).parameters.items() if one.kind is one.KEYWORD_ONLY]

    def call(text: str) -> Any:
        values = {name: ARGUMENTS[annotation](text) for name, annotation in needed.items()}
        keywords = {name: values.pop(name) for name in names if name in values}
        return function(*values.values(), **keywords)

    return call


def find_slow(reader: Reader) -> Iterator[tuple[str, str, float]]:
    """Yield the name of a function, a text that makes it slow, and the milliseconds."""

    def run(_: Any, text: str) -> None:
        try:
            answer = reader.call(text)
            if isinstance(answer, Iterator):
                deque(answer, maxlen=0)
        except Exception:  # noqa: BLE001 - the text is no name, number or date
            return

    for word in WORDS:
        attack = Attack("", word, "x")
        try:
            probe = measure(run, None, attack.write(PROBE))
            if probe < FAST_SECONDS or probe < 7 * measure(run, None, attack.write(SHORT)):
                continue
            probe = min(probe, *(measure(run, None, attack.write(PROBE) + "x" * n) for n in (1, 2)))
            if probe < FAST_SECONDS:
                continue
            long = min(measure(run, None, attack.write(LONG) + "x" * n) for n in (0, 1))
        except TimeOver:
            yield reader.name, str(attack), -1
            return
        if long > probe * LONG / PROBE * MAX_GROWTH:
            yield reader.name, str(attack), round(long * 1000, 1)
            return


def main() -> None:
    """Print how many functions there are, and the slow ones."""
    signal.signal(signal.SIGVTALRM, stop)
    readers = list(find_readers())
    print(json.dumps({"readers": len(readers)}))
    for reader in readers:
        print("#", reader.name, file=sys.stderr, flush=True)
        for slow in find_slow(reader):
            print(json.dumps(slow), flush=True)


if __name__ == "__main__":
    main()
