from tests.support.cast import ada, door, inspector, owner
from tests.support.story import alice, bob, quiet_runner, script, session
from tests.support.voyage import ask, voyage

__all__ = ["ada", "alice", "ask", "bob", "door", "inspector", "owner", "quiet_runner", "script", "session", "voyage"]
