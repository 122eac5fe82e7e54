"""Decisions about the active context: what a model sees, what was left out and why."""
