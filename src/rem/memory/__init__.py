"""Conversations: what was said is kept whole, and what a model is given of it fits."""
