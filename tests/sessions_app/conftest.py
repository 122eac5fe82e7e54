"""A user who reads pages."""

from __future__ import annotations

from django.db import connection

from tests.support.people.cast import ada, inspector
from tests.support.people.pages import ask, browser, reader

__all__ = ["ada", "ask", "browser", "inspector", "reader"]

collect_ignore = [f"database/guards/test_{'authorizer' if connection.vendor == 'postgresql' else 'grants'}.py"]
"""Each is about what one database has and the other lacks."""
