"""Ingest: from a file, folder or address to texts that can be found."""
