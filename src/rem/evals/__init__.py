"""Measure retrieval on data sets with known answers."""
