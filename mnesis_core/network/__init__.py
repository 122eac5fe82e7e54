"""What may be reached, from where, and how often."""
