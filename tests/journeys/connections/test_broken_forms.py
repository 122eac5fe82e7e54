"""Forms that no parser can read: refused as such at every endpoint, never a failure of ours."""

from __future__ import annotations

import gzip

import pytest

from tests.journeys.conftest import Caller

PART = b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n%s\r\n%s\r\n'
MULTIPART = "multipart/form-data; boundary=b"
FIELD = PART % (b"session_id", b"", b"", b"x")
FILE = PART % (b"file", b'; filename="a.txt"', b"", b"x")
END = b"--b--\r\n"


def parts(*given: bytes) -> bytes:
    return b"".join(given) + END


BROKEN: dict[str, tuple[str | bytes, bytes]] = {
    "no boundary": ("multipart/form-data", parts(FIELD, FILE)),
    "an empty boundary": ("multipart/form-data; boundary=", parts(FIELD, FILE)),
    "a boundary of spaces": ('multipart/form-data; boundary="   "', parts(FIELD, FILE)),
    "a boundary beyond ASCII": ("multipart/form-data; boundary=é".encode(), parts(FIELD, FILE)),
    "a boundary of too many characters": (f"multipart/form-data; boundary={'b' * 300}", parts(FIELD, FILE)),
    "a boundary in an encoding that is none": ("multipart/form-data; boundary*=base64''b", parts(FIELD, FILE)),
    "a type beyond ASCII": ("multipart/form-data; boundary=b; x=é".encode(), parts(FIELD, FILE)),
    "a type of many characters": (f"{MULTIPART}; x={'x' * 12_000}", parts(FIELD, FILE)),
    "a charset that is no text": (f"{MULTIPART}; charset=base64", parts(FIELD, FILE)),
    "a charset with a NUL": (f"{MULTIPART}; charset*=utf-8''%00", parts(FIELD, FILE)),
    "a charset that nobody knows": (f"{MULTIPART}; charset=klingon", parts(FIELD, FILE)),
    "a charset that escapes": (
        f"{MULTIPART}; charset=unicode_escape",
        parts(PART % (b"session_id", b"", b"", b"\\N{x")),
    ),
    "a charset of domains": (
        f"{MULTIPART}; charset=idna",
        parts(PART % (b"session_id", b"", b"", b"xn--\xff." * 99), FILE),
    ),
    "a charset that swells": (
        f"{MULTIPART}; charset=punycode",
        parts(PART % (b"session_id", b"", b"", b"a-\xff" * 99), FILE),
    ),
    "fields in another charset": ("application/x-www-form-urlencoded; charset=utf-16", b"session_id=x"),
    "fields in one that is no text": ("application/x-www-form-urlencoded; charset=hex", b"session_id=x"),
    "base 64 that is none": (
        MULTIPART,
        parts(FIELD, PART % (b"file", b'; filename="a"', b"Content-Transfer-Encoding: base64\r\n", b"====x")),
    ),
    "base 64 that is cut off": (
        MULTIPART,
        parts(FIELD, PART % (b"file", b'; filename="a"', b"Content-Transfer-Encoding: base64\r\n", b"QUJ")),
    ),
    "a transfer that nobody knows": (
        MULTIPART,
        parts(FIELD, PART % (b"file", b'; filename="a"', b"Content-Transfer-Encoding: x\r\n", b"x")),
    ),
    "a length of a part that is none": (
        MULTIPART,
        parts(FIELD, PART % (b"file", b'; filename="a"', b"Content-Length: x\r\n", b"x")),
    ),
    "a negative length of a part": (
        MULTIPART,
        parts(FIELD, PART % (b"file", b'; filename="a"', b"Content-Length: -5\r\n", b"x")),
    ),
    "a part of a charset that is none": (
        MULTIPART,
        parts(FIELD, PART % (b"file", b'; filename="a"', b"Content-Type: text/plain; charset=base64\r\n", b"x")),
    ),
    "a name in an encoding that is none": (
        MULTIPART,
        parts(FIELD, PART % (b"file", b"; filename*=base64''a", b"", b"x")),
    ),
    "a name in one that nobody knows": (
        MULTIPART,
        parts(FIELD, PART % (b"file", b"; filename*=klingon''a", b"", b"x")),
    ),
    "a name with a NUL": (MULTIPART, parts(FIELD, PART % (b"file", b"; filename*=utf-8''%00", b"", b"x"))),
    "headers of many characters": (MULTIPART, parts(PART % (b"file", b"", b"X: " + b"x" * 40_000 + b"\r\n", b"x"))),
    "many headers": (MULTIPART, parts(PART % (b"file", b"", b"X: y\r\n" * 3_000, b"x"))),
    "a value of many characters in a header": (
        MULTIPART,
        parts(PART % (b"session_id", b"; x=" + b"x" * 12_000, b"", b"x")),
    ),
    "more fields than anybody sends": (MULTIPART, parts(FIELD * 1_100)),
    "more files than anybody sends": (MULTIPART, parts(FIELD, FILE * 150)),
    "more fields by their names": ("application/x-www-form-urlencoded", b"&".join([b"x=y"] * 1_100)),
    "a part that does not end": (MULTIPART, FIELD + FILE[:-2]),
    "no parts": (MULTIPART, b""),
    "a boundary alone": (MULTIPART, b"--b"),
    "something else": (MULTIPART, b"\0\xff" * 99),
    "a NUL in a field": (MULTIPART, parts(PART % (b"session_id", b"", b"", b"a\0b"), FILE)),
    "bytes that are no text": ("application/x-www-form-urlencoded", b"session_id=%ff%00&csrfmiddlewaretoken=%ff"),
    "a compressed one": (MULTIPART, gzip.compress(parts(FIELD, FILE))),
}
KEYED = ["/api/files", "/api/sessions/import", "/api/sessions", "/v1/chat/completions", "/v1/messages", "/rpc", "/mcp"]
OPEN = ["/sign-in/", "/admin/login/", "/nowhere"]


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_form_is_refused(caller: Caller, what: str) -> None:
    content_type, body = BROKEN[what]
    headers = {"Content-Type": content_type, "Accept": "application/json, text/event-stream"}
    answers = {path: caller.client.post(path, content=body, headers=headers) for path in KEYED + OPEN}
    statuses = {path: answer.status_code for path, answer in answers.items()}
    assert [path for path, status in statuses.items() if status >= 500] == [], statuses
    for path in ("/api/files", "/api/sessions/import", "/api/sessions"):
        assert answers[path].status_code in (202, 404) or answers[path].json()["error"]["code"], answers[path].text
