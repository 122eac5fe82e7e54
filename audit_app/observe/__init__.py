"""Observe: everybody's sessions behind a query bar, for staff."""
