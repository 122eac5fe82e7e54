"""Servers of tools that administrators have attached."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from sessions_app.append_only import AppendOnlyModel, Rules

ID_LENGTH = 40
NAME_LENGTH = 32
ADDRESS_LENGTH = 2_000


class McpServer(AppendOnlyModel):
    """One way to reach a server of the Model Context Protocol, from when it was attached until it was removed.

    A change of it is another row: what sessions could call at any time stays known. No session's ledger binds it.
    """

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    name = models.CharField(max_length=NAME_LENGTH)
    argv = models.JSONField(default=list)
    """The program and its arguments; empty for a server over HTTP."""
    url = models.CharField(max_length=ADDRESS_LENGTH, default="")
    secrets = models.JSONField(default=dict)
    """Names only: of an environment variable of the program, or a header -> of the variable of ours with the value."""
    timeout_seconds = models.FloatField()
    needs_approval = models.BooleanField(default=False)
    trust_annotations = models.BooleanField(default=False)
    """Whether the server's own word is taken for which of its tools change nothing."""
    entered_on_host = models.BooleanField(default=False)
    """Whether a command on the host entered how it is reached. What a page entered is bound by the host's lists
    (``mnesis_core.host_lists``), at each connection too; so is a row of a time when nobody noted it."""
    created_at = models.DateTimeField()
    removed_at = models.DateTimeField(null=True)
    is_restricted = models.BooleanField(default=False)
    """Whether only those may be offered its tools whom a ``McpServerGrant`` names; without any, nobody is."""
    listing = models.TextField(default="")
    """Its tools as they were when an administrator last asked for them (``mnesis_core.attached.write_listing``)."""
    read_only_tools = models.JSONField(default=dict)
    """Tools of which an administrator has said that they change nothing -> digest of the listing they saw."""
    listed_at = models.DateTimeField(null=True)
    problem = models.TextField(default="")
    unreachable_since = models.DateTimeField(null=True)

    rules = Rules(
        once=("removed_at",),
        free=("is_restricted", "listing", "listed_at", "read_only_tools", "problem", "unreachable_since"),
        bound=False,
    )

    class Meta:
        db_table = "mcp_servers"
        verbose_name = "MCP server"
        constraints = [
            models.UniqueConstraint(
                fields=["name"], condition=models.Q(removed_at__isnull=True), name="mcp_server_attached_once"
            )
        ]

    def __str__(self) -> str:
        return self.name


class McpServerGrant(models.Model):
    """One group or one person whose sessions may be offered the tools of a restricted server."""

    server = models.ForeignKey(McpServer, on_delete=models.CASCADE, related_name="grants")
    group = models.ForeignKey("auth.Group", null=True, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+")

    class Meta:
        db_table = "mcp_server_grants"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(group__isnull=True) ^ models.Q(user__isnull=True), name="mcp_server_grant_to_one"
            ),
            models.UniqueConstraint(fields=["server", "group"], name="mcp_server_grant_of_group"),
            models.UniqueConstraint(fields=["server", "user"], name="mcp_server_grant_of_user"),
        ]

    def __str__(self) -> str:
        return f"{self.server_id} for {'group' if self.user_id is None else 'account'} {self.group_id or self.user_id}"
