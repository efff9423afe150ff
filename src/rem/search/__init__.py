"""Search: passages, the indexer, the ranking and the models that they use."""
