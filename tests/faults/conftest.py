from django.db import connection

from tests.support.story import alice, bob, quiet_runner, script, session

__all__ = ["alice", "bob", "quiet_runner", "script", "session"]

# What is about one kind of database belongs to the run on that one.
ON_SQLITE, ON_POSTGRESQL = ["test_full_disk.py", "test_power_cut.py"], ["test_line_to_postgresql.py"]
collect_ignore = ON_POSTGRESQL if connection.vendor == "sqlite" else ON_SQLITE
