"""REM: Resources, Entities, Moments."""
