"""Shared by several benchmarks: databases, sites, models and conversations."""
