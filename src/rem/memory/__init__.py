"""Conversations: what was said is stored as it was said, and given to the model within its budget."""
