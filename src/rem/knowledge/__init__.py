"""Files that become entries of the knowledge base or agents instead of chunks."""
