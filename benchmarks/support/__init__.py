"""What several benchmarks share: databases, sites, models and talks to measure with."""
