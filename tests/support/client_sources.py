"""The synchronous client, made from the asynchronous one: ``python -m tests.support.client_sources`` writes it anew."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from unasync import Rule, unasync_files

HOUSE = Path(__file__).resolve().parents[2]
CLIENT = HOUSE / "clients" / "python" / "mnesis_client"
NAMES = {
    "_async": "_sync",
    "AsyncClient": "Client",
    "AsyncConnection": "Connection",
    "asyncio": "time",
    "aclose": "close",
    "aclosing": "closing",
    "aread": "read",
    "aiter_bytes": "iter_bytes",
    "aiter_lines": "iter_lines",
}
MODULES = ("connection.py", "client.py")


def sync_sources() -> dict[str, str]:
    """Return the text of each synchronous module by its name, formatted as the rest of the house."""
    with TemporaryDirectory() as folder:
        shutil.copytree(CLIENT / "_async", Path(folder, "_async"), ignore=shutil.ignore_patterns("__pycache__"))
        rule = Rule("/_async/", "/_sync/", additional_replacements=NAMES)
        unasync_files([str(Path(folder, "_async", name)) for name in MODULES], [rule])
        made = Path(folder, "_sync")
        for step in (("check", "--quiet", "--select", "I", "--fix"), ("format", "--quiet")):
            command = [sys.executable, "-m", "ruff", *step, "--no-cache", "--config", str(HOUSE / "pyproject.toml")]
            subprocess.run([*command, str(made)], check=True)
        return {name: (made / name).read_text(encoding="utf-8") for name in MODULES}


if __name__ == "__main__":
    for name, text in sync_sources().items():
        (CLIENT / "_sync" / name).write_text(text, encoding="utf-8")
