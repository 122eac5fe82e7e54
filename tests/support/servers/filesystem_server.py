"""The server of files that everybody knows, from npm at a fixed version: it reads and writes, and says which tool does what."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGE, VERSION = "@modelcontextprotocol/server-filesystem", "2026.8.31"


@pytest.fixture(scope="session")
def filesystem_server(request: pytest.FixtureRequest) -> str:
    """The path of the program; tests that ask for it are skipped where there is no npm."""
    npm = shutil.which("npm")
    cache = request.config.cache
    if npm is None or shutil.which("node") is None or cache is None:
        pytest.skip("no npm: install nodejs and npm")
    folder = cache.mkdir("npm-server-filesystem")
    about = folder / "node_modules" / PACKAGE / "package.json"
    if not about.exists() or json.loads(about.read_text())["version"] != VERSION:
        options = ("--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error")
        subprocess.run(
            [npm, "install", *options, "--prefix", str(folder), f"{PACKAGE}@{VERSION}"], check=True, timeout=600
        )
    return str(Path(folder) / "node_modules" / ".bin" / "mcp-server-filesystem")
