"""Sessions out and in again: files of ours, whole databases, foreign histories."""
