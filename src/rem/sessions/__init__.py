"""Sessions: store every message, and select the history that a model is given."""
