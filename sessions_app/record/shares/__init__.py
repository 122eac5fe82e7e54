"""Shares: links that show other people a session as it was."""
