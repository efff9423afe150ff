"""The audit log: who read, wrote, deleted, approved and administered what. It has no content of memories."""
