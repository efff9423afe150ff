"""Jobs: work that is done later, by any worker on the same database."""
