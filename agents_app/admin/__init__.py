"""The inspector's pages about inboxes and runs, and the servers of tools, which an administrator attaches."""

from agents_app.admin.inbox import InboxMessageAdmin
from agents_app.admin.operators import OperatorItemAdmin, OperatorRunAdmin, OperatorTryAdmin
from agents_app.admin.servers import McpServerAdmin

__all__ = ["InboxMessageAdmin", "McpServerAdmin", "OperatorItemAdmin", "OperatorRunAdmin", "OperatorTryAdmin"]
