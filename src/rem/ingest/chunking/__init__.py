"""Cutting the text of a document into chunks."""
