"""The profiles dream: what is known about a user."""
