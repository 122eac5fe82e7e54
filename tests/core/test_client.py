"""The client's own modules: errors by their code, synchronous sources that are current, and no word that comes twice."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

import mnesis_client
from mnesis_client.errors import error_in
from mnesis_client.streams import Follower, text_of
from tests.support.documents.client_sources import TO, sync_source
from tests.support.documents.error_table import kinds


def test_the_clients_own_code_is_none_of_the_servers():
    assert mnesis_client.ConnectionFailed("").code not in {kind.code for kind in kinds()}


def test_the_synchronous_client_is_what_unasync_makes():
    assert TO.read_text(encoding="utf-8") == sync_source(), "make format writes it anew"


def test_an_error_has_what_the_server_says_of_it():
    error = error_in({"error": {"code": "SESSION_BUSY", "message": "m", "details": {"a": 1}}}, 409)
    assert (error.code, error.status, error.message, error.details) == ("SESSION_BUSY", 409, "m", {"a": 1})
    assert str(error) == "SESSION_BUSY: m"


def test_an_answer_that_says_nothing_is_an_internal_error():
    error = error_in("<html>", 502)
    assert (error.code, error.status) == ("INTERNAL_ERROR", 502)


def line(type: str, **values: Any) -> str:
    return "data: " + json.dumps({"type": type, **values})


def delta(offset: int, text: str) -> str:
    return line("delta", message_id="m", part_index=0, part_type="text", offset=offset, text=text)


def event(seq: int, type: str = "message.created", **data: Any) -> str:
    return line(type, seq=seq, data={"message_id": "m", "message_seq": 7, **data})


def test_no_event_and_no_word_comes_twice_over_a_lost_connection():
    follower = Follower(3)
    said = [follower.read(text) for text in (event(3), event(4), delta(0, "one "), delta(4, "two "))]
    assert follower.lost()
    said += [follower.read(text) for text in (event(4), line("caught_up", seq=4), delta(0, "one two three"))]
    frames = [frame for frame in said if frame]
    assert [frame["seq"] for frame in frames if "data" in frame] == [4]
    assert "".join(frame.get("text", "") for frame in frames) == "one two three"


def test_a_part_that_ended_while_the_line_was_down_is_read_whole():
    follower = Follower(3)
    ended = event(5, "part.created", part_type="text")
    follower.read(event(4))
    follower.read(delta(0, "one "))
    assert follower.lost()
    frame = follower.read(ended)
    assert frame is not None
    assert follower.missed(frame) == 7
    message: Any = {"id": "m", "parts": [{"type": "text", "index": 0, "text": "one two"}], "role": "assistant"}
    assert [text["text"] for text in follower.missed_texts(message)] == ["two"]
    assert text_of([message]) == "one two"


def test_silence_is_given_up():
    follower = Follower(0)
    assert [follower.lost() for _ in range(4)] == [True, True, True, False]


def test_a_stream_that_ends_with_an_error_raises_it_or_is_tried_again():
    with pytest.raises(mnesis_client.MnesisError, match="SESSION_NOT_FOUND: gone"):
        Follower(0).read(line("error", error={"code": "SESSION_NOT_FOUND", "message": "gone"}))
    with pytest.raises(httpx.ReadError):
        Follower(0).read(line("error", error={"code": "INTERNAL_ERROR", "message": "reconnect"}))
