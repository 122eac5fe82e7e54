"""What the record costs beside plain SQL that writes and reads the same rows: ``make bench``."""
