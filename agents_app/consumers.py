"""The websocket door of a session: frames out, turns and interrupts in."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

from channels.generic.websocket import AsyncWebsocketConsumer

from agents_app import lifecycle
from mnesis_core.errors import InvalidRequest, MnesisError, NotFound, PermissionDenied
from sessions_app.database import db
from sessions_app.follow import follow
from sessions_app.queries import load_session

NOT_SIGNED_IN, NOT_FOUND, REVOKED = 4401, 4404, 4409
CHECK_AGAIN_SECONDS = 30.0


class SessionConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """One client that follows one session."""

    async def connect(self) -> None:
        """Accept only the session's owner; the code says why not."""
        self.tasks: list[asyncio.Task[None]] = []
        await self.accept()
        if not self.scope["user"].is_authenticated:
            await self.close(NOT_SIGNED_IN)
            return
        self.session_id = self.scope["url_route"]["kwargs"]["session_id"]
        try:
            after = _after(self.scope["query_string"])
            await self._authorise()
        except NotFound:
            await self.close(NOT_FOUND)
            return
        except InvalidRequest as error:
            await self._send({"type": "error", "error": error.as_dict()})
            await self.close(NOT_FOUND)
            return
        self.tasks = [asyncio.create_task(self._follow(after)), asyncio.create_task(self._recheck())]

    async def disconnect(self, code: int) -> None:
        """The client is gone; whatever it started goes on."""
        for task in self.tasks:
            task.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """One frame of the client: ``{"type": "turn" | "interrupt" | "ping", …}``."""
        if not self.tasks:
            return
        reference: Any = None
        try:
            frame = _parse(text_data)
            reference = frame.get("id")
            await self._authorise()
            await self._act(frame)
        except MnesisError as error:
            await self._send({"type": "error", "id": reference, "error": error.as_dict()})

    async def _act(self, frame: dict[str, Any]) -> None:
        actions: dict[str, Callable[[dict[str, Any]], Awaitable[None]]] = {
            "turn": self._turn,
            "interrupt": self._interrupt,
            "ping": self._ping,
        }
        act = actions.get(str(frame.get("type")))
        if act is None:
            raise InvalidRequest(f"type must be one of {', '.join(actions)}", field="type")
        if act != self._ping and not self.scope.get("may_write", False):
            raise PermissionDenied("This API key may only read.")
        await act(frame)

    async def _turn(self, frame: dict[str, Any]) -> None:
        message, key = frame.get("message"), frame.get("idempotency_key")
        if not isinstance(message, str) or not isinstance(key, str | None):
            raise InvalidRequest("message must be text, idempotency_key too where there is one", field="message")
        started = await lifecycle.start_turn(
            self.session_id, owner_id=self.scope["user"].pk, message=message, idempotency_key=key
        )
        await self._send({"type": "accepted", "id": frame.get("id"), "turn_id": started.turn.id})

    async def _interrupt(self, frame: dict[str, Any]) -> None:
        turn = await db(lifecycle.interrupt, self.session_id, owner_id=self.scope["user"].pk)
        await self._send({"type": "accepted", "id": frame.get("id"), "turn_id": turn.id})

    async def _ping(self, frame: dict[str, Any]) -> None:
        await self._send({"type": "pong", "id": frame.get("id")})

    async def _follow(self, after: int) -> None:
        async with contextlib.aclosing(follow(self.session_id, after=after)) as frames:  # type: ignore[type-var]
            async for frame in frames:
                await self._send(frame)

    async def _recheck(self) -> None:
        """Channels keeps the user of the handshake for ever; sign-out and deletion close the socket here."""
        while True:
            await asyncio.sleep(CHECK_AGAIN_SECONDS)
            try:
                await self._authorise()
            except MnesisError:
                await self.close(REVOKED)
                return

    async def _authorise(self) -> None:
        await db(authorise, self.scope["user"], self.scope.get("session"), self.session_id)

    async def _send(self, frame: dict[str, Any]) -> None:
        await self.send(text_data=json.dumps(frame))


def authorise(user: Any, cookie_session: Any, session_id: str) -> None:
    """Make sure that this user may still see this session.

    :raises SessionNotFoundError: they may not, signed out, were disabled, or it is gone.
    """
    user.refresh_from_db(fields=["is_active"])
    is_signed_out = (
        cookie_session is not None
        and cookie_session.session_key
        and not cookie_session.exists(cookie_session.session_key)
    )
    if not user.is_active or is_signed_out:
        raise NotFound()
    load_session(session_id, owner_id=user.pk)


def _after(query_string: bytes) -> int:
    text = parse_qs(query_string.decode("ascii", "replace")).get("after", ["0"])[0]
    if not text.isdecimal() or len(text) > 15:
        raise InvalidRequest("after must be a whole number", field="after")
    return int(text)


def _parse(text: str | None) -> dict[str, Any]:
    try:
        frame = json.loads(text or "")
    except (ValueError, RecursionError):
        raise InvalidRequest("the frame is not JSON") from None
    if not isinstance(frame, dict):
        raise InvalidRequest("the frame must be an object")
    return frame
