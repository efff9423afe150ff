"""Data sets: their files, in the form in which their authors publish them, as cases."""
