"""Following a session: news between processes, the feed, and who may follow."""
