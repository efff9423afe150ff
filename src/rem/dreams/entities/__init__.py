"""The entities dream: people, organizations and projects that sessions and texts name."""
