"""Dreaming: what memories say when one sleeps on them, with where every statement came from."""
