from tests.support.cast import ada, door, inspector, owner
from tests.support.story import alice, bob, quiet_runner, script, session

__all__ = ["ada", "alice", "bob", "door", "inspector", "owner", "quiet_runner", "script", "session"]
