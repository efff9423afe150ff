"""The worker: takes jobs from the queue and runs their handlers."""
