"""How far something is, for a person and for a log."""

from __future__ import annotations

import io

import pytest
from django.core.management.base import OutputWrapper

from audit_app import terminal as progress
from audit_app.terminal import ProgressLine


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_ON_A_TERMINAL", 0.0)
    monkeypatch.setattr(progress, "SECONDS_ELSEWHERE", 0.0)


def written(*, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    line = ProgressLine(OutputWrapper(stream))
    line.show("copied", "messages", 500, 1_200)
    line.show("copied", "messages", 1_200, 1_200)
    line.end()
    line.end()
    return stream.getvalue()


def test_a_terminal_has_one_line_that_is_written_over(at_once: None, monkeypatch: pytest.MonkeyPatch):
    text = written(terminal=True, monkeypatch=monkeypatch)
    assert [part.rstrip() for part in text.removesuffix("\n").split("\r")] == [
        "",
        "messages: 500 of 1,200 rows copied",
        "messages: 1,200 of 1,200 rows copied",
    ]
    assert text.count("\n") == 1


def test_a_log_has_plain_lines(at_once: None, monkeypatch: pytest.MonkeyPatch):
    text = written(terminal=False, monkeypatch=monkeypatch)
    assert text == "messages: 500 of 1,200 rows copied\nmessages: 1,200 of 1,200 rows copied\n"


def test_a_log_is_not_filled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "SECONDS_ELSEWHERE", 3_600.0)
    assert written(terminal=False, monkeypatch=monkeypatch) == ""
