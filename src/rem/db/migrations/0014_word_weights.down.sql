-- Nothing to undo: the index of an earlier version has the same columns. The driver needs a statement.
SELECT 1;
