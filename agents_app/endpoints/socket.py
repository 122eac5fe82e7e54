"""The websocket endpoint of a session: frames out; turns, answers to what they wait for, and interrupts in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from channels.generic.websocket import AsyncWebsocketConsumer

from agents_app.schemas import AnswerIn, DecisionIn, TurnStartIn
from agents_app.turns import claim, lifecycle
from mnesis_core.actor import Via
from mnesis_core.errors import InvalidRequest, MnesisError, NotFound
from mnesis_core.records import new_request_id
from mnesis_core.text import read_json
from sessions_app.callers import TRY_AGAIN, actor_of, check_may_write, count_request
from sessions_app.conf import site_config
from sessions_app.database.outages import log_outage, to_error
from sessions_app.database.threads import AWAY, db
from sessions_app.live import Frame, check_viewer, follow, viewer_of_socket
from sessions_app.record.actor import error_body, serving

# Close codes, beside ``TRY_AGAIN``.
NOT_SIGNED_IN, NOT_FOUND, TOO_SLOW, REVOKED = 4401, 4404, 4408, 4409
FRAMES = ("turn", "answer", "approve", "interrupt", "ping")
logger = logging.getLogger(__name__)


class SessionConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    async def connect(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        await self.accept()
        if not self.scope["user"].is_authenticated:
            await self.close(NOT_SIGNED_IN)
            return
        self.session_id = self.scope["url_route"]["kwargs"]["session_id"]
        try:
            after = parse_qs(self.scope["query_string"].decode("ascii", "replace")).get("after", ["0"])[0]
            if not after.isdecimal() or len(after) > 15:
                raise InvalidRequest("after must be a whole number", field="after")
            await self._authorise()
        except NotFound:
            await self.close(NOT_FOUND)
            return
        except InvalidRequest as error:
            await self._send({"type": "error", "error": error_body(error)})
            await self.close(NOT_FOUND)
            return
        except AWAY as error:
            log_outage(logger, "Sockets are closed: the database does not answer", error)
            await self.close(TRY_AGAIN)
            return
        self.tasks = [asyncio.create_task(self._follow(int(after))), asyncio.create_task(self._recheck())]

    async def disconnect(self, code: int) -> None:
        # What the client started goes on.
        self._stop()

    def _stop(self) -> None:
        for task in self.tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self.tasks = []

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Handle a frame of the client: ``{"type": "turn" | "answer" | "approve" | "interrupt" | "ping", …}``."""
        if not self.tasks:
            return
        who = partial(actor_of, self.scope["user"], self.scope.get("key_prefix", ""))
        with serving(via=Via.SOCKET, request=new_request_id(), who=who):
            await self._handle(text_data)

    async def _handle(self, text_data: str | None) -> None:
        reference: Any = None
        try:
            frame = read_json(text_data or "")
            if not isinstance(frame, dict):
                raise InvalidRequest("the frame must be an object")
            reference = frame.get("id")
            count_request(user_id=self.owner_id, key_prefix=self.scope.get("key_prefix", ""))
            await self._authorise()
            kind = str(frame.get("type"))
            if kind not in FRAMES:
                raise InvalidRequest(f"type must be one of {', '.join(FRAMES)}", field="type")
            if kind == "ping":
                await self._send({"type": "pong", "id": reference})
                return
            check_may_write(self.scope.get("may_write", False))
            place = {"session_id": self.session_id, "owner_id": self.owner_id}
            match kind:
                case "turn":
                    arguments = TurnStartIn.model_validate(frame).arguments()
                    turn = (await lifecycle.start_turn(**place, **arguments)).turn
                case "answer":
                    asked = AnswerIn.model_validate(frame)
                    results = [claim.ToolResult(**result.said()) for result in asked.results]
                    turn = (await lifecycle.answer_tools(**place, turn_id=asked.turn_id, results=results)).turn
                case "approve":
                    turn = await lifecycle.decide_approval(**place, **DecisionIn.model_validate(frame).dict())
                case _:
                    turn = await db(lifecycle.interrupt, **place)
            await self._send({"type": "accepted", "id": reference, "turn_id": turn.id})
        except Exception as exception:
            error = to_error(exception, asked="websocket frame")
            await self._send({"type": "error", "id": reference, "error": error_body(error)})

    async def _follow(self, after: int) -> None:
        async with contextlib.aclosing(follow(self.session_id, after=after)) as frames:  # type: ignore[type-var]
            async for frame in frames:
                await self._send(frame)

    async def _recheck(self) -> None:
        # Channels keeps the user of the handshake for ever; the end of an account, a key or a sign-in is seen here.
        while True:
            await asyncio.sleep(site_config().stream.recheck_seconds)
            try:
                with contextlib.suppress(*AWAY):
                    await self._authorise()
            except MnesisError:
                await self._end(REVOKED)
                return

    @property
    def owner_id(self) -> int:
        return int(self.scope["user"].pk)

    async def _authorise(self) -> None:
        await db(check_viewer, viewer_of_socket(self.scope), self.session_id)

    async def _end(self, code: int) -> None:
        self._stop()
        await self.close(code)

    async def _send(self, frame: dict[str, Any]) -> None:
        # It takes until what was sent before is read (``mnesis_site.server``).
        try:
            async with asyncio.timeout(site_config().stream.slow_seconds):
                await self.send(text_data=frame.as_json() if isinstance(frame, Frame) else json.dumps(frame))
        except TimeoutError:
            await self._end(TOO_SLOW)
