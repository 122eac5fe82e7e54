"""Sessions as files that go from one site to another, for code with async and await."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Literal, cast

from mnesis_client import requests
from mnesis_client.connection_aio import AsyncConnection
from mnesis_client.downloads import whole_file
from mnesis_client.move_values import Import
from mnesis_client.uploads import opened_files

LOOK_SECONDS = 0.5
LIVE = ("waiting", "running")


class AsyncMoves(AsyncConnection):
    """What a client does with them."""

    async def export_session(
        self, session_id: str, path: str | Path, *, format: Literal["jsonl", "markdown", "html"] = "jsonl"
    ) -> Path:
        """Write a whole session into a file: ``jsonl`` may be imported again, the others are to be read."""
        request = requests.get("sessions", session_id, "export", format=format)
        with whole_file(path) as file:
            async with aclosing(self._pieces(request)) as pieces:
                async for piece in pieces:
                    file.write(piece)
        return Path(path)

    async def import_files(self, *paths: str | Path, model: str | None = None) -> Import:
        """Bring in exports of a site, and conversations of other programs; returns at once, a worker does the rest.

        Repeating it adds only what is new.

        :param model: who goes on with the conversations of other programs
        """
        with opened_files(paths) as files:
            return cast(Import, await self._send(requests.import_files(files, model)))

    async def read_import(self, import_id: str) -> Import:
        """How far an import is; for a day."""
        return cast(Import, await self._send(requests.get("sessions", "import", import_id)))

    async def wait_import(self, begun: Import) -> Import:
        """Wait until an import is done or has failed."""
        while True:
            now = await self.read_import(begun["id"])
            if now["state"] not in LIVE:
                return now
            await asyncio.sleep(LOOK_SECONDS)
