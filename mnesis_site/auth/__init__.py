"""Who is asking, and how often passwords may be tried."""
