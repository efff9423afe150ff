"""Measure REM: its speed, as ratios to a bare baseline that is measured in the same run, and how well it answers."""
