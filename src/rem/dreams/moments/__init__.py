"""The moments dream: derives episodes with time, people, topics and summary from sessions, notes and files."""
