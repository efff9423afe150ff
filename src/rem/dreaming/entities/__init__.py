"""Entities: people, organisations and projects that were named."""
