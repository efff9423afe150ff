"""Training of REM's own models. Nothing here is needed at run time (training/README.md)."""
