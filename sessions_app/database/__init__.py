"""The database below the record: threads, connections, outages, and the plain SQL of hot paths."""
