"""Pictures and PDFs at an address, fetched before a turn is accepted, so that the record has what the model was shown.

Whoever talks to a model may name any address, so only public ones are reached, and those inside the network that the host's
owner has listed. Every hop is checked, and connected to at the address that was checked. Nothing of ours is sent along: no
cookie, no credential, and no proxy of the environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from django.conf import settings

from mnesis_core.errors import NotListed, PictureNotFetched, RemotePicture, RequestTooLarge
from mnesis_core.files.pictures import SentPicture, read_fetched
from mnesis_core.network.hosts import pin
from sessions_app.conf import host_lists, site_config

if TYPE_CHECKING:
    import httpx2

MOST_REDIRECTS = 5
HEADERS = {"User-Agent": "Mnesis", "Accept": "image/*, application/pdf", "Accept-Encoding": "identity"}


async def fetch_pictures(sent: Sequence[SentPicture]) -> tuple[SentPicture, ...]:
    """Return what was sent, with the bytes of what was sent as an address; nothing is kept.

    Each address is fetched once. All of them may take as long as ``files.fetch_seconds`` says, and have together as many bytes
    as a request may have.

    :raises RemotePicture: this site fetches nothing.
    :raises NotListed: an address, or one that it leads to, is inside the network and not listed.
    :raises PictureNotFetched: there is nothing at an address, or it takes too long.
    :raises RequestTooLarge: there are too many bytes.
    :raises InvalidPicture: the bytes are of another format.
    """
    wanted = {one.url: one.place for one in sent if one.url and not one.data}
    if not wanted:
        return tuple(sent)
    config, found, place = site_config().files, dict[str, bytes](), next(iter(wanted.values()))
    if not config.fetch_addresses:
        raise RemotePicture(field=place)
    import httpx2  # takes a tenth of a second

    room = most = min(config.largest_bytes, settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    # A connection is not used again: it was opened for one name, and another may have the same address.
    limits = httpx2.Limits(max_keepalive_connections=0)
    client = httpx2.AsyncClient(trust_env=False, timeout=None, limits=limits)
    try:
        async with asyncio.timeout(config.fetch_seconds), client:
            for url, place in wanted.items():
                found[url] = await _fetch(client, url, place, most=room)
                room -= len(found[url])
    except _TooLong:
        raise RequestTooLarge(f"what is fetched for a request may have {most:,} bytes", field=place) from None
    except TimeoutError:
        raise _failed(f"it took longer than {config.fetch_seconds:g} seconds", place) from None
    except NotListed as error:
        raise NotListed(error.text, error.values, **{**error.details, "field": place}) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        raise _failed(str(error)[:200] or type(error).__name__, place) from None
    return tuple(read_fetched(found[one.url], one) if one.url in found else one for one in sent)


class _TooLong(Exception):
    pass


async def _fetch(client: httpx2.AsyncClient, url: str, place: str, *, most: int) -> bytes:
    for _ in range(MOST_REDIRECTS + 1):
        client.cookies.clear()
        host_lists().check_url(url, field=place)
        request = client.build_request("GET", url, headers=HEADERS)
        named = request.url
        await asyncio.to_thread(pin, request, host_lists().addresses)
        async with aclosing(await client.send(request, stream=True)) as response:
            if response.status_code == 200:
                return await _read(response, most)
            if not response.has_redirect_location:
                raise _failed(f"its server answered {response.status_code}", place)
            url = str(named.join(response.headers["Location"]))
    raise _failed(f"it leads on more than {MOST_REDIRECTS} times", place)


async def _read(response: httpx2.Response, most: int) -> bytes:
    data = bytearray()
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > most:
            raise _TooLong
    return bytes(data)


def _failed(reason: str, place: str) -> PictureNotFetched:
    return PictureNotFetched(f"The picture or document cannot be fetched from its address: {reason}", field=place)
