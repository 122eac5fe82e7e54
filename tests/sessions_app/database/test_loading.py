"""Large packages are imported one at a time, by the first thread that asks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.waiting import PATIENCE_SECONDS

BOTH = """
import asyncio, sys
from sessions_app.database.threads import load

async def main():
    wanted = sys.argv[1:]
    found = await asyncio.gather(*(load(name) for name in wanted))
    print(*(module.__name__ for module in found))

asyncio.run(main())
"""


@pytest.mark.slow
def test_two_that_import_the_same_circle_at_once_both_get_it():
    # Each is an entrance into the SDK's circle of imports; with two threads at once one of them fails.
    names = ["mcp.server.streamable_http_manager", "mcp.client.client"]
    done = subprocess.run(
        [sys.executable, "-c", BOTH, *names], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.stdout.split() == names, done.stderr
