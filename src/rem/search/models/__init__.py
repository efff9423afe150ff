"""REM's own models, which are part of the package. training/README.md says how they were made."""
