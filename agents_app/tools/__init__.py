"""Tools that a model may call. Importing the package registers the built-in ones."""

from agents_app.tools import arithmetic, memory  # noqa: F401
