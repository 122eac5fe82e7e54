"""Sessions as files that go from one site to another. Made from moves_aio.py: do not edit."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Literal, cast

from mnesis_client import requests
from mnesis_client.connection_sync import Connection
from mnesis_client.downloads import whole_file
from mnesis_client.move_values import Import
from mnesis_client.uploads import opened_files

LOOK_SECONDS = 0.5
LIVE = ("waiting", "running")


class Moves(Connection):
    """What a client does with them."""

    def export_session(
        self, session_id: str, path: str | Path, *, format: Literal["jsonl", "markdown", "html"] = "jsonl"
    ) -> Path:
        """Write a whole session into a file: ``jsonl`` may be imported again, the others are to be read."""
        request = requests.get("sessions", session_id, "export", format=format)
        with whole_file(path) as file:
            with closing(self._pieces(request)) as pieces:
                for piece in pieces:
                    file.write(piece)
        return Path(path)

    def import_files(self, *paths: str | Path, model: str | None = None) -> Import:
        """Bring in exports of a site, and conversations of other programs; returns at once, a worker does the rest.

        Repeating it adds only what is new.

        :param model: who goes on with the conversations of other programs
        """
        with opened_files(paths) as files:
            return cast(Import, self._send(requests.import_files(files, model)))

    def read_import(self, import_id: str) -> Import:
        """How far an import is; for a day."""
        return cast(Import, self._send(requests.get("sessions", "import", import_id)))

    def wait_import(self, begun: Import) -> Import:
        """Wait until an import is done or has failed."""
        while True:
            now = self.read_import(begun["id"])
            if now["state"] not in LIVE:
                return now
            time.sleep(LOOK_SECONDS)
