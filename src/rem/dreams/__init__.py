"""Dreams derive moments, entities, edges and profiles from stored memories. Every statement has sources."""
