"""Facts of a session: written, read, withdrawn and corrected."""
