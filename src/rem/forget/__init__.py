"""Expiring rows, forgetting a person or thing, and erasing users."""
