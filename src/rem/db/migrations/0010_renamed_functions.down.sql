-- Nothing to undo: an earlier version of REM creates its functions itself. The driver needs a statement.
SELECT 1;
