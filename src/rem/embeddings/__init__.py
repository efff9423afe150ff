"""Vectors of texts: one protocol, and the providers behind it."""

from __future__ import annotations

from rem.embeddings.embedder import Embedder, Vector, Vectors
from rem.embeddings.factory import NoEmbedder, embedder_at_hand, open_embedder
from rem.embeddings.text import is_blank

__all__ = ["Embedder", "NoEmbedder", "Vector", "Vectors", "embedder_at_hand", "is_blank", "open_embedder"]
