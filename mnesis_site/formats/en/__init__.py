"""The language of the site."""
