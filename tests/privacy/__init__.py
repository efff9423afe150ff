"""Secrets and personal data in stored texts."""
