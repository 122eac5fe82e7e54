"""The synchronous client, made from the asynchronous one: ``python -m tests.support.documents.client_sources`` writes it anew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from unasync import Rule, unasync_files

HOUSE = Path(__file__).resolve().parents[3]
CLIENT = HOUSE / "clients" / "python" / "mnesis_client"
NAMES = {
    "AsyncClient": "Client",
    "AsyncConnection": "Connection",
    "asyncio": "time",
    "aclose": "close",
    "aclosing": "closing",
    "aread": "read",
    "aiter_bytes": "iter_bytes",
    "aiter_lines": "iter_lines",
}
FROM, TO = CLIENT / "async_client.py", CLIENT / "client.py"


def sync_source() -> str:
    """Return the text of the synchronous client, formatted as the rest of the house."""
    with TemporaryDirectory() as folder:
        source, made = Path(folder, "_async", "client.py"), Path(folder, "_sync", "client.py")
        source.parent.mkdir()
        source.write_text(FROM.read_text(encoding="utf-8"), encoding="utf-8")
        unasync_files([str(source)], [Rule("/_async/", "/_sync/", additional_replacements=NAMES)])
        for step in (("check", "--quiet", "--select", "I", "--fix"), ("format", "--quiet")):
            command = [sys.executable, "-m", "ruff", *step, "--no-cache", "--config", str(HOUSE / "pyproject.toml")]
            subprocess.run([*command, str(made)], check=True)
        return made.read_text(encoding="utf-8")


if __name__ == "__main__":
    TO.write_text(sync_source(), encoding="utf-8")
