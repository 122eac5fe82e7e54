"""A turn from its start to its end: claimed, run step by step, suspended, recovered."""
