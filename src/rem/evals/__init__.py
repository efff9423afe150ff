"""Measuring REM: data sets with questions whose answers are known, and how well the memory finds them."""
