"""One module for each source of vectors."""
