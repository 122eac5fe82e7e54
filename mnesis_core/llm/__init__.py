"""Language models: the one interface to them, their limits, and how tokens are estimated."""
