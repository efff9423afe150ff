"""Moments: episodes of conversations and texts."""
