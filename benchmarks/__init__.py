"""Benchmarks of the record against plain SQL that writes and reads the same rows: ``make bench``."""
