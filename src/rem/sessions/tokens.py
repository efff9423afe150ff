"""Count the tokens of a text with the tokenizer of current OpenAI models. Other models differ by a few percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

import orjson

from rem.text import clean_text

ENCODING = "o200k_base"
MAX_COUNTED_CHARS = 50_000
"""Texts up to this length are counted exactly. Longer ones are estimated from samples with half of this length."""
SAMPLES = 4
MESSAGE_OVERHEAD_TOKENS = 4
"""Tokens that the role and the separators of a message take in a prompt."""


@cache
def _tokenizer() -> Any:
    # Only the compiled module of the library: the package itself parses three vocabularies, which takes half a second.
    package = find_spec("bpe_openai")
    spec = PathFinder.find_spec("bpe_openai._bindings", package.submodule_search_locations if package else None)
    if spec is None or spec.loader is None:
        raise ImportError("The package bpe-openai is not complete: install REM again.")
    bindings = module_from_spec(spec)
    spec.loader.exec_module(bindings)
    return bindings.tokenizer_for_encoding(ENCODING)


def count_tokens(text: str) -> int:
    """Return the number of tokens of a text. For a very long text it is an estimate, at least one per 16 characters."""
    if len(text) <= MAX_COUNTED_CHARS:
        return int(_tokenizer().count(clean_text(text)))
    sample_chars = MAX_COUNTED_CHARS // 2 // SAMPLES
    step = (len(text) - sample_chars) // (SAMPLES - 1)
    samples = (text[number * step :][:sample_chars] for number in range(SAMPLES))
    sampled_tokens = sum(map(count_tokens, samples))
    return max(sampled_tokens * len(text) // (sample_chars * SAMPLES), len(text) // 16)


def encode_tokens(text: str) -> list[int]:
    """Return the token ids of a text. Frequent tokens have small ids, in every language."""
    return list(_tokenizer().encode(clean_text(text)))


def count_message_tokens(content: str, tool_calls: Sequence[Any] = ()) -> int:
    """Return the number of tokens of a message: its text, and the names and arguments of its tool calls."""
    tokens = count_tokens(content)
    for call in tool_calls:
        if isinstance(call, Mapping):
            call = [call.get("name"), call.get("arguments")]
        tokens += count_tokens(orjson.dumps(call).decode())
    return tokens


@lru_cache(maxsize=20_000)
def count_tokens_cached(_message_id: str, content: str) -> int:
    """Return the number of tokens of a shortened message. Cached, because every turn asks for it again."""
    return count_tokens(content)


def truncate_to_tokens(text: str, max_tokens: int) -> str:
    """Return the start of a text within `max_tokens`, cut after a line or word where possible."""
    if len(text) <= max_tokens or count_tokens(text) <= max_tokens:
        return text
    # A token of ordinary text has about four characters, and rarely more than eight.
    start = text[: max_tokens * 8]
    while start and (tokens := count_tokens(start)) > max_tokens:
        start = start[: min(len(start) - 1, len(start) * max_tokens // tokens)]
    last_break = max(start.rfind("\n"), start.rfind(" "))
    return start[:last_break] if last_break > len(start) // 2 else start
