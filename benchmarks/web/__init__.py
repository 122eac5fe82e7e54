"""Benchmarks of what a web process does."""
