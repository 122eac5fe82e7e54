"""What a host's owner lists, for tests of pages that name it."""

from __future__ import annotations

import shlex
import sys
from typing import Any

from mnesis_core.network.hosts import read_lists
from tests.support.servers.mcp_servers import HOSTILE


def list_on_host(settings: Any, **lists: str) -> None:
    """Let the host's owner have listed this, and nothing else."""
    settings.MNESIS = settings.MNESIS | {"HOST_LISTS": read_lists(**lists)}


def list_for_pages(settings: Any) -> None:
    """Let the host's owner have listed what tests of pages attach and enter."""
    python = shlex.join([sys.executable, "-I", "-S", HOSTILE])
    list_on_host(
        settings,
        programs=f"{python} ...; /no/such/program",
        variables="PATH, BIG_KEY, BIG_KEY@http://127.0.0.1:9",
        addresses="127.0.0.1",
    )
