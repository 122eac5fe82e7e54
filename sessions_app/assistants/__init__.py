"""Assistants: a name, instructions, a model, settings and questions to begin with, for new sessions."""
