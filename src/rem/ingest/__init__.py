"""Ingestion: fetch files, read them, cut them into chunks and store these in an owner's memory."""
