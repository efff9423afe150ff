"""The job queue in the database. Any worker can process the jobs."""
