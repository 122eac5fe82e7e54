"""The stories' fixtures: each defect is tried as a user would meet it."""

from tests.support.people.story import alice, bob, quiet_runner, script, session

__all__ = ["alice", "bob", "quiet_runner", "script", "session"]
