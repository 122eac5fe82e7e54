"""Decisions about compaction: what to summarise next, and whether a summary is accepted."""
