"""How many tokens a text takes, by the tokenizer of current OpenAI models; others differ by some percent."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import orjson

_ENCODING = "o200k_base"
_COUNTED = 50_000
"""In characters: a text up to this length is counted, a longer one is judged by samples of half of it."""
_SAMPLES = 4
MESSAGE_OVERHEAD_TOKENS = 4
"""What the role and the borders of a message take in a prompt."""


@cache
def _encoding() -> Any:
    # Loading it takes a tenth of a second, and most commands count nothing.
    with warnings.catch_warnings():
        # It reads its own files by a function that Python has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        import bpe_openai  # type: ignore[import-untyped]

        return bpe_openai.get_encoding(_ENCODING)


def count_tokens(text: str) -> int:
    """The number of tokens of a text; an estimate, never below one token in 16 characters, where it is very long."""
    if len(text) <= _COUNTED:
        return len(_encoding().encode_ordinary(text)) if text else 0
    size = _COUNTED // 2 // _SAMPLES
    step = (len(text) - size) // (_SAMPLES - 1)
    counted = sum(len(_encoding().encode_ordinary(text[place * step :][:size])) for place in range(_SAMPLES))
    return max(counted * len(text) // (size * _SAMPLES), len(text) // 16)


def encode_tokens(text: str) -> list[int]:
    """The tokens of a text. Frequent ones have small numbers, whatever the language."""
    return list(_encoding().encode_ordinary(text))


def count_message_tokens(content: str, tool_calls: Sequence[Any] = ()) -> int:
    """The tokens of a message: its text, and the name and arguments of what it calls."""
    tokens = count_tokens(content)
    for call in tool_calls:
        if isinstance(call, Mapping):
            call = [call.get("name"), call.get("arguments")]
        tokens += count_tokens(orjson.dumps(call).decode())
    return tokens


@lru_cache(maxsize=20_000)
def count_tokens_cached(_message_id: str, content: str) -> int:
    """`count_tokens` of a shortened message, which is asked for again with every turn."""
    return count_tokens(content)


def truncate_to_tokens(text: str, most: int) -> str:
    """The beginning of a text within a number of tokens, up to the end of a line or word if there is one."""
    if len(text) <= most or count_tokens(text) <= most:
        return text
    # A token of ordinary text has about four characters, rarely over eight.
    shorter = text[: most * 8]
    while shorter and (tokens := count_tokens(shorter)) > most:
        shorter = shorter[: min(len(shorter) - 1, len(shorter) * most // tokens)]
    ends = max(shorter.rfind("\n"), shorter.rfind(" "))
    return shorter[:ends] if ends > len(shorter) // 2 else shorter
