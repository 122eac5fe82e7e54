from tests.support.people.programs import no_connection_left
from tests.support.people.story import alice, bob, quiet_runner, script, session

__all__ = ["alice", "bob", "no_connection_left", "quiet_runner", "script", "session"]
