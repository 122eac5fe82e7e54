"""Decisions about files outside the context: how one is referenced, explored, read and searched."""
