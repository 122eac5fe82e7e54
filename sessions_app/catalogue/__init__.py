"""The models of a site: entered, checked, chosen."""
