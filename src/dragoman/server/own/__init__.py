"""The server's own API: /api/v1."""
