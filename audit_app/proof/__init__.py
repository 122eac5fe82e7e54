"""The proof of the record: chains, rows, directory, damage."""
