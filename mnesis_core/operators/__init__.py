"""Operators' decisions: one model call, or one sub-agent, for each line of a file.

Nothing here writes: rows are ``agents_app.store.operators``, the stories are ``agents_app.operators``.
"""
