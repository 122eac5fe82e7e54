"""The client for code with async and await, from which unasync makes the one in _sync."""
