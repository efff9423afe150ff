"""Finding by meaning and words: texts become passages, passages get weights and vectors, a search ranks them."""
