"""Privacy: what may be stored of secrets and personal data."""
