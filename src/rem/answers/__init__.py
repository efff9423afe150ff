"""Answers to questions in plain words."""
