"""Tests of the encryption of stored texts."""
