"""The kinds of files. Each module has ``VERSION``, raised when it says something else of the same bytes, and ``explore``."""
