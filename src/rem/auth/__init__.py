"""Authentication: who calls, proven by a cookie, a token or an API key."""
