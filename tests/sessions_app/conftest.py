"""A user who reads pages."""

from __future__ import annotations

from django.db import connection

from tests.support.cast import ada, inspector
from tests.support.pages import ask, browser, reader

__all__ = ["ada", "ask", "browser", "inspector", "reader"]

collect_ignore = ["test_authorizer.py" if connection.vendor == "postgresql" else "test_grants.py"]
"""Each is about what one database has and the other lacks."""
