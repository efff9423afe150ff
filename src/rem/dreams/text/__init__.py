"""Text analysis for dreams: content words, secrets, and parts that are not the author's own words."""
