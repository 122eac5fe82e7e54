"""The only writers of the tables of agents."""

from agents_app.store.inbox import receive_message, take_messages
from agents_app.store.servers import note_answer, note_problem, put_listing, put_server, remove_server

__all__ = [
    "note_answer",
    "note_problem",
    "put_listing",
    "put_server",
    "receive_message",
    "remove_server",
    "take_messages",
]
