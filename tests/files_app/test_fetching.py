"""Pictures and PDFs at an address: whom the site asks for them, how much it reads, and what it tells of itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from files_app.fetching import fetch_pictures
from mnesis_core.errors import (
    InvalidPicture,
    NotListed,
    PictureNotFetched,
    RemotePicture,
    RequestTooLarge,
)
from mnesis_core.files.pictures import SentPicture, read_data_url, read_picture
from mnesis_core.network import hosts
from sessions_app.conf import site_config
from tests.support.material.drawings import data_url, drawing
from tests.support.servers.picture_server import PDF, PICTURE, PictureServer


@pytest.fixture
def configured(settings: Any, tmp_path: Path) -> Iterator[Any]:
    def configured(text: str) -> None:
        (tmp_path / "mnesis.toml").write_text(f"[files]\n{text}\n")
        settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(tmp_path / "mnesis.toml")}
        site_config.cache_clear()

    yield configured
    site_config.cache_clear()


def at(url: str, *, is_document: bool = False) -> SentPicture:
    return read_picture(url, place="parts.0", is_document=is_document)


async def test_what_is_at_an_address_is_told_by_its_bytes(pictures: PictureServer) -> None:
    here = read_data_url(data_url(drawing()), place="x")
    picture, pdf = at(f"{pictures.url}/quay.png"), at(f"{pictures.url}/tides.pdf", is_document=True)
    found = await fetch_pictures([picture, here, pdf, picture])
    assert [one.data for one in found] == [PICTURE, here.data, PDF, PICTURE]
    assert [one.media_type for one in found] == ["image/png", "image/png", "application/pdf", "image/png"]
    assert re.fullmatch(r"picture-\w{12}\.png", found[0].name)
    assert pictures.paths == ["/quay.png", "/tides.pdf"]
    assert await fetch_pictures(found) == found
    assert len(pictures.paths) == 2


async def test_a_redirect_is_followed_and_nothing_of_ours_is_sent(
    pictures: PictureServer, monkeypatch: Any, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ada password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    [found] = await fetch_pictures([at(f"{pictures.url}/to//to/{pictures.url}/quay")])
    assert (found.data, len(pictures.paths)) == (PICTURE, 3)
    for request in pictures.requests:
        assert set(request["headers"]) <= {"Host", "Accept", "Accept-Encoding", "Connection", "User-Agent"}


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.2/a.png", "http://[::1]/a.png", "http://localhost.:1/a.png", "http://0x7f.2/a.png"),
        *("http://10.0.0.1/a.png", "http://169.254.169.254/latest", "http://[::ffff:10.0.0.1]/", "http://0/"),
        *("http://ada:word@127.0.0.1/a.png", "https://", "http://127.0.0.1:99999/", "https:a.png"),
    ],
)
async def test_no_address_inside_the_network_is_reached_not_even_by_a_redirect(
    pictures: PictureServer, url: str
) -> None:
    for asked in (url, f"{pictures.url}/to/{url}"):
        with pytest.raises((NotListed, PictureNotFetched)) as refused:
            await fetch_pictures([at(asked)])
        assert refused.value.details["field"] == "parts.0"
    assert all(path.startswith("/to/") for path in pictures.paths)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/a.png", "data:image/png;base64,AAAA"])
async def test_a_redirect_leads_to_the_web_only(pictures: PictureServer, url: str) -> None:
    with pytest.raises(NotListed):
        await fetch_pictures([at(f"{pictures.url}/to/{url}")])


async def test_a_name_is_connected_to_at_the_address_that_was_checked(
    pictures: PictureServer, monkeypatch: Any
) -> None:
    answers = [["127.0.0.1"], ["10.0.0.1"]]
    monkeypatch.setattr(hosts, "look_up", lambda host, port: answers.pop(0))
    url = f"http://pictures.test:{pictures.server_port}/quay.png"
    [found] = await fetch_pictures([at(url)])
    assert found.data == PICTURE
    assert pictures.requests[0]["headers"]["Host"] == f"pictures.test:{pictures.server_port}"
    with pytest.raises(NotListed):
        await fetch_pictures([at(url)])
    answers.append(["127.0.0.1", "10.0.0.1"])
    with pytest.raises(NotListed):
        await fetch_pictures([at(url)])
    assert len(pictures.paths) == 1


async def test_a_relative_redirect_keeps_the_name(pictures: PictureServer, monkeypatch: Any) -> None:
    monkeypatch.setattr(hosts, "look_up", lambda host, port: ["127.0.0.1"])
    [found] = await fetch_pictures([at(f"http://pictures.test:{pictures.server_port}/to//quay.png")])
    assert found.data == PICTURE
    assert {request["headers"]["Host"] for request in pictures.requests} == {f"pictures.test:{pictures.server_port}"}


@pytest.mark.parametrize(
    ("path", "error", "told"),
    [
        ("none", PictureNotFetched, "its server answered 404"),
        ("again", PictureNotFetched, "it leads on more than 5 times"),
        ("cut", PictureNotFetched, "address: "),
        ("nonsense", PictureNotFetched, "address: "),
        ("slow", PictureNotFetched, "it took longer than 0.3 seconds"),
        ("large", RequestTooLarge, "may have 1,000 bytes"),
        ("words", InvalidPicture, "the bytes are no PNG"),
        ("empty", InvalidPicture, "the bytes are no PNG"),
        ("tides.pdf", InvalidPicture, "the bytes are no PNG"),
        ("to/", PictureNotFetched, "it leads on more"),
        ("\0\ud800", PictureNotFetched, "address: "),
    ],
)
async def test_what_is_wrong_with_an_address_is_told(
    pictures: PictureServer, configured: Any, path: str, error: type[Exception], told: str
) -> None:
    configured("fetch_seconds = 0.3\nlargest_bytes = 1_000")
    with pytest.raises(error, match=told) as refused:
        await fetch_pictures([at(f"{pictures.url}/{path}")])
    assert refused.value.details["field"] == "parts.0"  # type: ignore[attr-defined]
    assert len(pictures.paths) <= 6


async def test_nobody_may_listen_there(pictures: PictureServer) -> None:
    with pytest.raises(PictureNotFetched):
        await fetch_pictures([at("http://127.0.0.1:1/a.png")])


async def test_a_picture_in_place_of_a_pdf_is_refused(pictures: PictureServer) -> None:
    with pytest.raises(InvalidPicture, match="the bytes are no PDF"):
        await fetch_pictures([at(f"{pictures.url}/quay.png", is_document=True)])


async def test_all_addresses_of_a_request_share_one_size(pictures: PictureServer, configured: Any) -> None:
    configured(f"largest_bytes = {len(PICTURE) + len(PDF) - 1}")
    with pytest.raises(RequestTooLarge):
        await fetch_pictures([at(f"{pictures.url}/quay.png"), at(f"{pictures.url}/tides.pdf", is_document=True)])


async def test_a_site_may_fetch_nothing(pictures: PictureServer, configured: Any) -> None:
    configured("fetch_addresses = false")
    with pytest.raises(RemotePicture) as refused:
        await fetch_pictures([at(f"{pictures.url}/quay.png")])
    assert (refused.value.details, pictures.paths) == ({"field": "parts.0"}, [])
