"""The search index: split texts into passages, weigh their words, embed them, and rerank hits."""
