"""Benchmarks of pages in Chromium."""
