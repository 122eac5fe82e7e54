"""Models of the site: entered and chosen, called in one way, and what calls cost and may cost."""
