"""Hosts that may be reached, and limits on how often callers may ask."""
