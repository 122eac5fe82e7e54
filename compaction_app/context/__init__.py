"""The active context: its state, what is beside its items, and what past calls were sent."""
