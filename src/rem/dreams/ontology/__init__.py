"""The ontology dream: extracts structured data from files and texts."""
