"""The inspector of a session for people: what happened, what the model saw, what was compacted and why."""
