"""Profiles: who a user is."""
