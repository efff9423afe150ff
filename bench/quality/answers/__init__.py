"""`python -m bench answers`: a model reads what the memory finds and answers; another model judges the answers."""
