"""Count the tokens of a text with the tokenizer of current OpenAI models. Other models differ by a few percent."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import orjson

ENCODING = "o200k_base"
MAX_COUNTED_CHARS = 50_000
"""Texts up to this length are counted exactly. Longer ones are estimated from samples with half of this length."""
SAMPLES = 4
MESSAGE_OVERHEAD_TOKENS = 4
"""Tokens that the role and the separators of a message take in a prompt."""


@cache
def _encoding() -> Any:
    # Imported here: loading it takes a tenth of a second, and most commands count nothing.
    with warnings.catch_warnings():
        # The library reads its files with a function that Python has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        import bpe_openai  # type: ignore[import-untyped]

        return bpe_openai.get_encoding(ENCODING)


def count_tokens(text: str) -> int:
    """Return the number of tokens of a text. For a very long text it is an estimate, at least one per 16 characters."""
    if len(text) <= MAX_COUNTED_CHARS:
        return len(_encoding().encode_ordinary(text)) if text else 0
    sample_chars = MAX_COUNTED_CHARS // 2 // SAMPLES
    step = (len(text) - sample_chars) // (SAMPLES - 1)
    samples = (text[number * step :][:sample_chars] for number in range(SAMPLES))
    sampled_tokens = sum(len(_encoding().encode_ordinary(sample)) for sample in samples)
    return max(sampled_tokens * len(text) // (sample_chars * SAMPLES), len(text) // 16)


def encode_tokens(text: str) -> list[int]:
    """Return the token ids of a text. Frequent tokens have small ids, in every language."""
    return list(_encoding().encode_ordinary(text))


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
