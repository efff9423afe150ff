"""Measure how well REM remembers a week of everyday notes and conversations, without a language model."""
