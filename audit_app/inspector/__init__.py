"""The inspector's pages about proof and health."""
