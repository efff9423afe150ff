"""Worker: does the jobs."""
