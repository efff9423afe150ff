"""`python -m bench memory`: one report on the quality of the memory, which can be compared with the one before."""
