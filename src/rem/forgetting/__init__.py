"""Forgetting: what lapses, what is to be forgotten, and users who leave."""
