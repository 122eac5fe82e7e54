from tests.support.people.programs import no_connection_left
from tests.support.people.story import alice, bob, quiet_runner, script, session
from tests.support.servers.picture_server import picture_server, pictures

__all__ = ["alice", "bob", "no_connection_left", "picture_server", "pictures", "quiet_runner", "script", "session"]
