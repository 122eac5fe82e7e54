"""Decisions about turns: what a caller may ask of one, what is recorded of it, and what it may hand on."""
