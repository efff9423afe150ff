"""Readers: each turns the bytes of one file format into a parsed document."""
