"""Endpoints: each parses, makes one call and translates back."""
