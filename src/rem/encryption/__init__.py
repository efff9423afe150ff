"""Encryption of stored texts: the keys, and the values that they seal."""
