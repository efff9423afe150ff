"""`/chat/completions`: OpenAI's protocol, with REM's events beside the text."""
