"""Files of sessions. Made from files_aio.py: do not edit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Unpack, cast

import httpx

from mnesis_client import requests
from mnesis_client.connection_sync import Connection
from mnesis_client.errors import Conflict, ConnectionFailed, MnesisError, UploadNotFound
from mnesis_client.file_values import File, FileFound, FileLines, FileSearchOptions
from mnesis_client.streams import ATTEMPTS, PAUSE_SECONDS
from mnesis_client.uploads import SMALL_BYTES, LocalFile


class Files(Connection):
    """What a client does with them."""

    def upload_file(self, session_id: str, path: str | Path, *, name: str | None = None) -> File:
        """Give a session a file of this machine; a large one goes on by itself after a lost connection."""
        source = LocalFile(path, name)
        if source.size <= SMALL_BYTES:
            return cast(File, self._send(requests.upload(session_id, source.name, source.piece(0))))
        return self._upload(session_id, source)

    def files(self, session_id: str | None = None) -> Iterator[File]:
        """Every file of a session, or of all, newest first."""
        for file in self._all(requests.get("files", session_id=session_id)):
            yield cast(File, file)

    def read_file(self, file_id: str) -> File:
        """What is known of a file."""
        return cast(File, self._send(requests.get("files", file_id)))

    def file_lines(self, file_id: str, *, first: int = 1, limit: int | None = None) -> FileLines:
        """Lines of a file from a number on."""
        return cast(FileLines, self._send(requests.get("files", file_id, "lines", first=first, limit=limit)))

    def search_file(self, file_id: str, q: str, **options: Unpack[FileSearchOptions]) -> FileFound:
        """The next lines of a file that match."""
        return cast(FileFound, self._send(requests.get("files", file_id, "search", q=q, **options)))

    def _upload(self, session_id: str, source: LocalFile) -> File:
        begun = self._answer(requests.begin_upload(session_id, source.name, source.size))
        upload_id, offset, left = begun.headers["Location"].rpartition("/")[2], 0, ATTEMPTS
        while True:
            try:
                answer = self._answer(requests.send_piece(upload_id, offset, source.piece(offset)))
                left = ATTEMPTS
            except (ConnectionFailed, Conflict) as problem:
                left -= 1
                # A request that was cut off may hold the upload for a moment; other conflicts stay.
                if not left or problem.said_code not in (ConnectionFailed.code, Conflict.code):
                    raise
                time.sleep(PAUSE_SECONDS)
                try:
                    answer = self._answer(requests.ask_upload(upload_id))
                except MnesisError as gone:
                    if gone.status != httpx.codes.NOT_FOUND:
                        raise
                    return self._kept(session_id, source)
            offset = int(answer.headers["Upload-Offset"])
            if file_id := answer.headers.get("Mnesis-File"):
                return self.read_file(file_id)

    def _kept(self, session_id: str, source: LocalFile) -> File:
        """The file of an upload that was whole, where only the answer was lost."""
        digest = source.digest()
        for file in self.files(session_id):
            if file["content_id"] == digest:
                return file
        raise UploadNotFound()
