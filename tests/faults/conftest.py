from django.db import connection

from tests.support.story import alice, bob, quiet_runner, script, session

__all__ = ["alice", "bob", "quiet_runner", "script", "session"]

# These are about one kind of database, and part of the run on that one.
collect_ignore = ["test_line_to_postgresql.py" if connection.vendor == "sqlite" else "test_power_cut.py"]
