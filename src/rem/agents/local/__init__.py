"""`rem:local`: the built-in model that searches the memory and quotes it, without a language model."""
