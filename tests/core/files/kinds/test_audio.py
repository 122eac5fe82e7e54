"""Audio: how long it is and what it is called, without playing it."""

from __future__ import annotations

import pytest

from mnesis_core.files.detection import detect
from mnesis_core.files.kinds.audio import explore
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource
from tests.support.material.drawings import mp3, recording

TITLE = b"Harbour\nInjected: yes"
TAG = (
    b"ID3\x03\0\0\0\0\0" + bytes([len(TITLE) + 11]) + b"TIT2" + (len(TITLE) + 1).to_bytes(4, "big") + b"\0\0\0" + TITLE
)


@pytest.mark.parametrize(
    ("data", "said"), [(recording(), "2.0 seconds, 32,044 bytes"), (mp3(), "2.6 seconds, 41,700 bytes")]
)
def test_it_is_detected_by_its_bytes_and_says_how_long_it_is(source: MakeSource, data: bytes, said: str) -> None:
    made = source("voice", data)
    assert detect(made).name == "audio"
    assert explore(made).lines[0] == f"Audio, {said}"


def test_what_it_is_called_stays_on_one_line(source: MakeSource) -> None:
    assert explore(source("a.mp3", TAG + mp3())).lines[2] == "Title: Harbour Injected: yes"


@pytest.mark.parametrize(
    "data", [b"ID3", b"OggS" + bytes(40), b"fLaC", recording()[:20], b"RIFF\0\0\0\0WAVEdata\xff\xff\xff\xff", mp3()[:2]]
)
def test_what_is_broken_says_so(source: MakeSource, data: bytes) -> None:
    with pytest.raises(Unreadable):
        explore(source("a.mp3", data))
