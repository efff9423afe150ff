"""A month of two people: store it, ask questions in plain words, and score the visible answers."""
