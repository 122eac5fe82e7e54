"""Answers as they go over the line: compressed where that is right, and static files once for a year."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urljoin

import httpx
import pytest

from tests.journeys.conftest import Caller
from tests.support.sites.site import Site
from tests.support.waiting import PATIENCE_SECONDS

COMPRESSED = {"Accept-Encoding": "gzip"}
TEXT = "Every word of it counts. " * 500


@pytest.fixture(scope="module")
def nobody(site: Site) -> Iterator[httpx.Client]:
    """A browser without a cookie."""
    with httpx.Client(base_url=site.url, timeout=PATIENCE_SECONDS) as client:
        yield client


@pytest.fixture(scope="module")
def page(nobody: httpx.Client) -> httpx.Response:
    return nobody.get("/sign-in/", headers=COMPRESSED)


def test_pages_and_json_are_compressed(caller: Caller, page: httpx.Response) -> None:
    assert (page.headers["Content-Encoding"], page.headers["Vary"].count("Accept-Encoding")) == ("gzip", 1)
    session_id = caller.new_session()
    caller.call("POST", f"/api/sessions/{session_id}/record", {"user": TEXT, "assistant": TEXT})
    path = f"/api/sessions/{session_id}/messages"
    small, large = (caller.client.get(path, headers={"Accept-Encoding": encoding}) for encoding in ("gzip", "identity"))
    assert small.headers["Content-Encoding"] == "gzip"
    assert small.json() == large.json()
    assert int(small.headers["Content-Length"]) * 4 < int(large.headers["Content-Length"])
    assert "Accept-Encoding" in large.headers["Vary"]


def test_two_answers_with_one_content_differ_in_length(caller: Caller) -> None:
    """What an onlooker could tell from lengths is hidden (BREACH)."""
    answers = [caller.client.get("/api/openapi.json", headers=COMPRESSED) for _ in range(20)]
    assert len({answer.text for answer in answers}) == 1
    assert len({answer.headers["Content-Length"] for answer in answers}) > 1


def test_streams_are_sent_as_they_come(caller: Caller) -> None:
    session_id = caller.new_session()
    headers = COMPRESSED | {"Accept": "text/event-stream"}
    with caller.client.stream("GET", f"/api/sessions/{session_id}/events", headers=headers) as answer:
        assert "Content-Encoding" not in answer.headers
        assert next(answer.iter_lines())


def test_downloads_keep_their_bytes_ranges_and_tags(caller: Caller) -> None:
    session_id = caller.new_session()
    sent = caller.client.post("/api/files", data={"session_id": session_id}, files={"file": ("a.txt", TEXT.encode())})
    path = f"/api/files/{sent.json()['id']}/content"
    whole = caller.client.get(path, headers=COMPRESSED)
    assert (whole.text, whole.headers["Content-Length"]) == (TEXT, str(len(TEXT)))
    assert "Content-Encoding" not in whole.headers
    tag = whole.headers["ETag"]
    part = caller.client.get(path, headers=COMPRESSED | {"Range": "bytes=5000-", "If-Range": tag})
    assert (part.status_code, part.text, part.headers["ETag"]) == (206, TEXT[5000:], tag)
    assert "Content-Encoding" not in part.headers
    assert caller.client.get(f"{path}?limit=1000", headers=COMPRESSED).headers["Content-Length"] == "1000"


def test_static_files_are_kept_for_a_year_and_name_each_other(nobody: httpx.Client, page: httpx.Response) -> None:
    addresses = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text))
    assert len(addresses) > 4
    seen = set()
    while addresses:
        address = addresses.pop()
        seen.add(address)
        answer = nobody.get(address, headers=COMPRESSED)
        assert answer.status_code == 200, address
        assert "immutable" in answer.headers["Cache-Control"], address
        assert re.search(r"max-age=\d{8,}", answer.headers["Cache-Control"])
        # Django pads with up to a hundred random bytes, and sends a short file as it is when that makes it longer.
        is_small = len(answer.content) < 1_000 or answer.headers["Content-Type"] == "image/png"
        assert is_small or answer.headers["Content-Encoding"] == "gzip", address
        assert answer.content == nobody.get(address, headers={"Accept-Encoding": "identity"}).content, address
        found = re.findall(r"""(?:from |import |import\()["'](\.[^"']+)["']|url\(["']?([^"'):]+)["')]""", answer.text)
        addresses |= {urljoin(address, one or other) for one, other in found} - seen
    assert len(seen) > 8
    assert any(len(nobody.get(address).content) > 20_000 for address in seen)


def test_the_icon_that_browsers_ask_for_by_themselves_leaves_the_cookie_for_forms_alone(nobody: httpx.Client) -> None:
    answer = nobody.get("/favicon.ico", follow_redirects=True)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/svg+xml")
    assert not any("Set-Cookie" in one.headers for one in (*answer.history, answer))


def test_a_range_of_a_static_file_is_of_the_file_itself(nobody: httpx.Client, page: httpx.Response) -> None:
    [address] = re.findall(r'"(/static/[^"]+/base.css)"', page.text)
    whole = nobody.get(address, headers={"Accept-Encoding": "identity"}).content
    part = nobody.get(address, headers=COMPRESSED | {"Range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, whole[100:200])
    assert "Content-Encoding" not in part.headers


@pytest.mark.parametrize("version", ["", "0123456789ab/"])
def test_an_address_of_another_version_leads_to_this_one(
    nobody: httpx.Client, page: httpx.Response, version: str
) -> None:
    [address] = re.findall(r'"(/static/[^"]+/base.css)"', page.text)
    answer = nobody.get(f"/static/{version}css/base.css")
    assert (answer.status_code, answer.headers["Location"]) == (302, address)
    assert "no-store" in answer.headers["Cache-Control"]
    missing = nobody.get(f"/static/{version}css/none.css", follow_redirects=True)
    assert missing.status_code == 404


def test_pages_of_the_administration_have_their_files(nobody: httpx.Client) -> None:
    answer = nobody.get("/admin/login/")
    addresses = re.findall(r'(?:src|href)="(/static/[^"]+)"', answer.text)
    assert addresses
    assert {nobody.get(address).status_code for address in addresses} == {200}
