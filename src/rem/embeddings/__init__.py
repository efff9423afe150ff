"""Embeddings: turn texts into vectors. One protocol, several providers."""

from __future__ import annotations

from rem.embeddings.embedder import Embedder, Vector, Vectors
from rem.embeddings.factory import UnavailableEmbedder, keep_recorded_model, open_embedder, try_open_embedder
from rem.embeddings.validation import is_blank

__all__ = [
    "Embedder",
    "UnavailableEmbedder",
    "Vector",
    "Vectors",
    "is_blank",
    "keep_recorded_model",
    "open_embedder",
    "try_open_embedder",
]
