"""File contents in a storage that speaks S3."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import boto3
import pytest
from django.core.exceptions import ImproperlyConfigured
from moto.server import ThreadedMotoServer

from files_app.contents import content_size, is_whole, on_disk, put_content, put_stream, read_content, reading
from mnesis_core.errors import FileContentNotFound
from mnesis_site.settings import file_storage


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def _bucket(endpoint: str, settings, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    address = f"s3://words/kept?endpoint={quote(endpoint, safe='')}&region=us-east-1"
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket="words")
    settings.STORAGES = settings.STORAGES | {"files": file_storage(address, tmp_path)}


@pytest.mark.usefixtures("_bucket")
def test_contents_are_kept_read_in_pieces_and_proved_in_a_bucket():
    content_id = put_content(b"hello world")
    assert put_stream([b"hello ", b"world"], largest=100) == (content_id, 11)
    assert (content_size(content_id), read_content(content_id, 6, 100)) == (11, b"world")
    assert read_content(content_id, 11, 10) == b""
    assert is_whole(content_id)
    with on_disk(content_id) as path:
        assert path.read_bytes() == b"hello world"


@pytest.mark.usefixtures("_bucket")
def test_what_is_read_on_in_a_bucket_is_all_of_it_in_any_order():
    whole = bytes(range(256)) * 4_000
    with reading(put_content(whole)) as read:
        assert b"".join(read(offset, 100_000) for offset in range(0, len(whole), 100_000)) == whole
        assert read(5, 3) == whole[5:8]
        assert read(len(whole) - 2, 9) == whole[-2:]


@pytest.mark.usefixtures("_bucket")
def test_what_is_not_in_the_bucket_is_not_found():
    for look in (content_size, is_whole, lambda id: read_content(id, 0, 1)):
        with pytest.raises(FileContentNotFound):
            look("0" * 64)


@pytest.mark.parametrize("address", ["http://words", "s3://", "s3://words?colour=blue", "s3://words?endpoint"])
def test_an_address_that_is_none_is_refused_in_words(address: str, tmp_path):
    with pytest.raises(ImproperlyConfigured, match="MNESIS_FILES_URL"):
        file_storage(address, tmp_path)
