from tests.support.people.cast import ada, inspector, owner, owner_client
from tests.support.people.story import alice, bob, quiet_runner, script, session
from tests.support.record.voyage import ask, voyage

__all__ = [
    "ada",
    "alice",
    "ask",
    "bob",
    "inspector",
    "owner",
    "owner_client",
    "quiet_runner",
    "script",
    "session",
    "voyage",
]
