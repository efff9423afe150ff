"""Find people, organisations and places in texts with REM's own tagger."""
