"""Which kind a file is."""

from __future__ import annotations

import pytest

from mnesis_core.files.detection import detect
from tests.core.files.conftest import MakeSource


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.csv", b"a,b\n", "csv"),
        ("A.CSV", b"a,b\n", "csv"),
        ("a.tab", b"a\tb\n", "tsv"),
        ("a.csv", b"SQLite format 3\x00", "sqlite"),
        ("a.txt", b"%PDF-1.4", "pdf"),
        ("a.db", b"hello", "text"),
        ("a.csv", b"\x00\x01\x02", "binary"),
        ("a.csv", "a,b\n".encode("utf-16"), "csv"),
        ("a.svg", b"<?xml version='1.0'?><svg/>", "xml"),
        ("a.html", b"<?xml version='1.0'?><html/>", "html"),
        ("app.log.1", b"anything", "log"),
        ("app.log.2.gz", b"\x1f\x8b\x08", "archive"),
        ("syslog", b"anything", "log"),
    ],
)
def test_bytes_come_before_the_name(source: MakeSource, name: str, data: bytes, kind: str) -> None:
    assert detect(source(name, data)).name == kind


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'{"a": 1}', "json"),
        (b"[\n 1,\n 2]", "json"),
        (b'{"a": 1}\n{"a": 2}\n', "jsonl"),
        (b"[INFO] started\n[INFO] ended\n", "text"),
        (b"[1] A book.\n[2] Another.\n", "text"),
        (b"[2024-01-02 10:00:00] started\n", "log"),
        (b'1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 12\n', "log"),
        (b"<!doctype html><p>", "html"),
        ("<?xml version='1.0'?><a/>".encode("utf-16"), "xml"),
        (b"-- MySQL dump 10\n", "sql"),
        (b"--\n-- PostgreSQL database dump\n--\n", "sql"),
        (b"From: a@b\nTo: c@d\n\nhi", "email"),
        (b"#!/usr/bin/env python3\n", "python"),
        (b"hello", "text"),
        (b"", "text"),
        (b"\x00\x01", "binary"),
    ],
)
def test_what_has_no_telling_name_is_known_by_what_it_looks_like(source: MakeSource, data: bytes, kind: str) -> None:
    assert detect(source("content", data)).name == kind
