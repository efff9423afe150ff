"""Sources that files are fetched from: local paths, HTTP and S3."""
