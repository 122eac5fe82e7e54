"""The tables of agents: servers of tools, inboxes, and runs of operators."""

from agents_app.models.inbox import InboxMessage
from agents_app.models.operators import (
    OperatorBrake,
    OperatorItem,
    OperatorRun,
    OperatorShare,
    OperatorTry,
)
from agents_app.models.servers import ADDRESS_LENGTH, ID_LENGTH, NAME_LENGTH, McpServer, McpServerGrant

__all__ = [
    "ADDRESS_LENGTH",
    "ID_LENGTH",
    "NAME_LENGTH",
    "InboxMessage",
    "McpServer",
    "McpServerGrant",
    "OperatorBrake",
    "OperatorItem",
    "OperatorRun",
    "OperatorShare",
    "OperatorTry",
]
