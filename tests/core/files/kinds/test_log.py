"""What is said of logs."""

from __future__ import annotations

import pytest

from mnesis_core.files.kinds import text
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource


def test_time_levels_and_repeated_lines_are_told(source: MakeSource) -> None:
    data = (
        b"2024-03-01 10:00:00,123 INFO request 1 from 10.0.0.1\n"
        b"2024-03-01 10:00:01,123 INFO request 2 from 10.0.0.2\n"
        b"2024-03-01 10:00:02,123 ERROR request 3 failed: 0xdeadbeef\n"
        b"2024-03-01 10:00:03,123 WARN session 123e4567-e89b-12d3-a456-426614174000 is slow\n"
    )
    assert text.explore_log(source("a.log", data)).lines == [
        "4 lines",
        "From 2024-03-01 10:00:00,123 to 2024-03-01 10:00:03,123, a time in 4 of them",
        "Levels: INFO ×2, ERROR ×1, WARNING ×1",
        "Errors by frequency, # for what changes:",
        "  ×1: ERROR request # failed: #",
        "  the last: ERROR request 3 failed: 0xdeadbeef",
        "3 shapes of lines, # for what changes:",
        "  ×2: INFO request # from #",
        "  ×1: ERROR request # failed: #",
        "  ×1: WARN session # is slow",
    ]


@pytest.mark.parametrize(
    ("line", "time"),
    [
        (b"Mar  1 10:00:00 host sshd[1]: hi", "Mar 1 10:00:00"),
        (b'1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 12', "10/Oct/2000:13:55:36"),
        (b"[    1.234567] usb: new device", "[ 1.234567]"),
        (b"2024-03-01T10:00:00.5Z hi", "2024-03-01T10:00:00.5Z"),
    ],
)
def test_times_of_many_kinds_are_found(source: MakeSource, line: bytes, time: str) -> None:
    assert text.explore_log(source("a.log", line)).lines[1].startswith(f"From {time} to {time}")


@pytest.mark.parametrize("line", [b"time=1 level=error x", b'{"level":"error"}', b"[error] x", b"<err> x"])
def test_levels_in_small_letters_are_found_where_a_level_stands(source: MakeSource, line: bytes) -> None:
    assert "Levels: ERROR ×1" in text.explore_log(source("a.log", line + b"\nthere was no error\n")).lines


def test_answers_of_http_are_counted(source: MakeSource) -> None:
    line = b'1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" %d 12\n'
    assert (
        "HTTP answers: 2xx ×2, 5xx ×1" in text.explore_log(source("a.log", line % 200 + line % 204 + line % 503)).lines
    )


def test_a_frequent_shape_survives_very_many_rare_ones(source: MakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MOST_SHAPES", 100)
    words = ["".join(chr(97 + int(digit)) for digit in str(number)) for number in range(2_000)]
    data = "\n".join(f"{word}\nalways the same" for word in words)
    found = text.explore_log(source("a.log", data.encode()))
    assert "  ×2,000: always the same" in found.lines
    assert any("rare ones" in line for line in found.lines)


def test_an_empty_file_is_unreadable(source: MakeSource) -> None:
    with pytest.raises(Unreadable):
        text.explore_log(source("a.log", b""))
