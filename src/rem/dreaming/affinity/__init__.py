"""Affinity: what belongs together."""
