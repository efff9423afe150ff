"""Make the tokenizer of the local models."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rem.embeddings.minilm.weights import MAX_TOKENS

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def make_tokenizer(content: bytes) -> Tokenizer:
    """Return a tokenizer with at most 256 tokens and no padding. The published file says 128, and pads."""
    from tokenizers import Tokenizer

    # The tokenizer's own threads would not be bounded, and they warn when the process forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tokenizer: Tokenizer = Tokenizer.from_buffer(content)
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    return tokenizer
