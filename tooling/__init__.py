"""Programs for the development of REM. They are not installed with it."""
