"""Runs over many items. Made from maps_aio.py: do not edit."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Unpack, cast

from mnesis_client import requests
from mnesis_client.connection_sync import Connection
from mnesis_client.map_values import AgenticMapValues, MapItem, MapResult, MapRun, MapValues
from mnesis_client.requests import Request

LOOK_SECONDS = 0.5
LIVE = ("pending", "running")


class Maps(Connection):
    """What a client does with them."""

    def llm_map(self, template: str, **values: Unpack[MapValues]) -> MapRun:
        """Ask a model about each item; returns at once, workers do the rest."""
        return cast(MapRun, self._send(requests.start_map("llm-map", template, values)))

    def agentic_map(self, template: str, **values: Unpack[AgenticMapValues]) -> MapRun:
        """Have a sub-agent work at each item; returns at once, workers do the rest."""
        return cast(MapRun, self._send(requests.start_map("agentic-map", template, values)))

    def read_map(self, run_id: str) -> MapRun:
        """How far a run is, and its first failures."""
        return cast(MapRun, self._send(requests.get("operators", run_id)))

    def maps(self, session_id: str | None = None) -> Iterator[MapRun]:
        """Every run of a session, or of all, newest first."""
        for run in self._all(requests.get("operators", session_id=session_id)):
            yield cast(MapRun, run)

    def wait_map(self, run: MapRun) -> MapRun:
        """Wait until nothing more comes of a run by itself: it is over, or paused."""
        while True:
            now = self.read_map(run["id"])
            if now["state"] not in LIVE:
                return now
            time.sleep(LOOK_SECONDS)

    def pause_map(self, run_id: str) -> MapRun:
        """Begin no more items; those in flight come to their end."""
        return cast(MapRun, self._send(requests.post("operators", run_id, "pause")))

    def resume_map(self, run_id: str) -> MapRun:
        """Go on with a run that is paused or was cancelled."""
        return cast(MapRun, self._send(requests.post("operators", run_id, "resume")))

    def cancel_map(self, run_id: str) -> MapRun:
        """Stop a run; what is done is kept."""
        return cast(MapRun, self._send(requests.post("operators", run_id, "cancel")))

    def retry_map(self, run_id: str) -> MapRun:
        """Try the items that failed again."""
        return cast(MapRun, self._send(requests.post("operators", run_id, "retry")))

    def map_items(self, run_id: str, *, state: str | None = None) -> Iterator[MapItem]:
        """Items in the order of the input: all, or those in a state."""
        request = requests.get("operators", run_id, "items", state=state)
        for item in self._all(request, place="after", first=0):
            yield cast(MapItem, item)

    def read_map_item(self, run_id: str, item: int) -> MapItem:
        """One item and every try at it."""
        return cast(MapItem, self._send(requests.get("operators", run_id, "items", str(item))))

    def map_results(self, run_id: str) -> Generator[MapResult, None, None]:
        """The results as they are now, a line at a time, in the order of the input."""
        return self._results(requests.get("operators", run_id, "output.jsonl"))

    def follow_map(self, run_id: str, *, after: int = 0) -> Generator[MapResult, None, None]:
        """Each result when its item ends, until the run is over; a run that is paused is waited for.

        :param after: ``seq`` of a result: those of later events come
        :raises ConnectionFailed: the connection broke off; go on after the ``seq`` before the last one
        """
        return self._results(requests.get("operators", run_id, "results.jsonl", after=after))

    def _results(self, request: Request) -> Generator[MapResult, None, None]:
        with closing(self._pieces(request)) as pieces:
            rest = b""
            for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield cast(MapResult, json.loads(line))
