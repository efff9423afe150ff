"""Ontology: structured data from files."""
