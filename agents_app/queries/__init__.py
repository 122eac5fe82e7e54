"""Reads of the servers of tools and of inboxes, as values."""

from agents_app.queries.inbox import (
    count_waiting,
    find_sent,
    list_inbox,
    load_inbox_message,
    load_taken,
    load_waiting,
    spoken_at,
    waiting_sessions,
)
from agents_app.queries.servers import list_servers, load_server, server_of

__all__ = [
    "count_waiting",
    "find_sent",
    "list_inbox",
    "list_servers",
    "load_inbox_message",
    "load_server",
    "load_taken",
    "load_waiting",
    "server_of",
    "spoken_at",
    "waiting_sessions",
]
