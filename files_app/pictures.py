"""Pictures for models: those that came inside a request become files, and of each file that is shown a rendition is kept.

A rendition is a file of the session that shows it, so that whatever exports, moves, verifies or erases a session's files
has it too. It is made once for a rule, outside every lock; a past prompt names its content.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from django.core.cache import cache
from django.utils.translation import gettext_noop

from files_app.contents import content_size, on_disk, put_content
from files_app.intake import check_room, keep_file
from files_app.queries import contents_of_files, load_renditions
from files_app.store import store_file_reference
from mnesis_core.context.entries import Picture
from mnesis_core.context.pictures import MOST_PICTURES
from mnesis_core.errors import FileContentNotFound, InvalidPicture, RequestTooLarge
from mnesis_core.files.pictures import (
    FORMATS,
    PICTURE_KIND,
    PORTRAIT,
    RENDITION,
    PictureRule,
    Rendition,
    SentPicture,
    kind_of,
    rule_for,
)
from mnesis_core.files.sandbox import ExplorationLimits, render_alone
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.providers.litellm_ import kinds_shown
from mnesis_core.records import SessionRecord
from sessions_app.conf import site_config
from sessions_app.record.change import change

MOST_PORTRAIT_BYTES = 1_000_000
PROBLEM_SECONDS = 86_400  # A picture of which there is no rendition is not tried again for so long.


def find_pictures(
    session: SessionRecord, file_ids: Sequence[str], rule: PictureRule, *, makes: bool = False
) -> dict[str, Picture]:
    """Return the pictures that a model is shown under a rule, by the ids of their files; two queries.

    Files of others, and what is no picture, are absent.

    :param makes: whether to make the renditions that are missing, of the newest files
    """
    contents = contents_of_files(file_ids, owner_id=session.owner_id)
    renditions = load_renditions(session.id, rule)
    missing = [id for id in file_ids if id in contents and contents[id] not in renditions]
    if makes and missing:
        for content_id in dict.fromkeys(contents[id] for id in missing[-MOST_PICTURES:]):
            _make(session.id, content_id, rule)
        renditions = load_renditions(session.id, rule)
    return {id: renditions[content] for id, content in contents.items() if content in renditions}


def keep_pictures(session_id: str, pictures: Sequence[SentPicture], *, owner_id: int, spec: ModelSpec) -> list[str]:
    """Keep pictures that came inside a request as files of a session, return their ids, in order.

    :param spec: the model that is asked; where it takes pictures, their renditions are kept too
    :raises InvalidPicture: one cannot be decoded. Nothing is kept then.
    :raises MnesisError: see ``keep_file``
    """
    check_room(session_id, owner_id=owner_id, size=max(len(sent.data) for sent in pictures))
    rule, made = rule_for(spec.litellm_model), []
    for number, sent in enumerate(pictures, start=1):
        with tempfile.NamedTemporaryFile() as file:
            file.write(sent.data)
            file.flush()
            made.append(rendition := _render(Path(file.name), rule))
        if isinstance(rendition, str) and sent.media_type in FORMATS:
            raise InvalidPicture(
                gettext_noop("picture %(number)s cannot be shown: %(reason)s"),
                {"number": number, "reason": rendition},
                picture=number,
            )
    kept = [keep_file(session_id, owner_id=owner_id, path=sent.name, chunks=[sent.data]) for sent in pictures]
    for file_kept, rendition in zip(kept, made, strict=True):
        if isinstance(rendition, Rendition) and kind_of(rendition.media_type) in kinds_shown(spec):
            _keep(session_id, file_kept.content_id, rule, rendition)
    return [file_kept.id for file_kept in kept]


def keep_portrait(chunks: Iterable[bytes]) -> str:
    """Keep a picture that arrives in pieces as pages show it beside a name: small, and written anew. Return its content's id.

    :raises RequestTooLarge: it has more than ``MOST_PORTRAIT_BYTES``.
    :raises InvalidPicture: it is no picture, or cannot be decoded.
    """
    with tempfile.NamedTemporaryFile() as file:
        for chunk in chunks:
            file.write(chunk)
            if file.tell() > MOST_PORTRAIT_BYTES:
                raise RequestTooLarge(
                    gettext_noop("A picture may have %(most)s bytes."), {"most": MOST_PORTRAIT_BYTES}, field="picture"
                )
        file.flush()
        rendition = _render(Path(file.name), PORTRAIT)
    if isinstance(rendition, str) or rendition.media_type not in FORMATS:
        raise InvalidPicture(
            gettext_noop("This is not a picture. Send a complete PNG, JPEG, WebP or GIF."), field="picture"
        )
    return put_content(rendition.data)


def size_documents(sent: Iterable[SentPicture], rule: PictureRule) -> dict[str, int]:
    """Return the tokens of the first PDFs and recordings among what was sent, by name; nothing is kept."""
    documents = {one.name: one for one in sent if one.data and kind_of(one.media_type) != PICTURE_KIND}
    found = {}
    for one in list(documents.values())[:MOST_PICTURES]:
        with tempfile.NamedTemporaryFile() as file:
            file.write(one.data)
            file.flush()
            rendition = _render(Path(file.name), rule)
        if isinstance(rendition, Rendition):
            found[one.name] = rendition.tokens
    return found


def _make(session_id: str, content_id: str, rule: PictureRule) -> None:
    key = f"no-rendition-{rule.name}-{content_id}"
    if cache.get(key):
        return
    with suppress(FileContentNotFound), on_disk(content_id) as place:
        rendition = _render(place, rule)
        if isinstance(rendition, str):
            cache.set(key, rendition, PROBLEM_SECONDS)
        else:
            _keep(session_id, content_id, rule, rendition)


def _keep(session_id: str, content_id: str, rule: PictureRule, rendition: Rendition) -> None:
    if rendition.is_whole:
        length = {"pages": rendition.pages} if rendition.pages else {"seconds": rendition.seconds}
        kept, size = content_id, {**length, "tokens": rendition.tokens}
    else:
        kept, size = put_content(rendition.data), {"width": rendition.width, "height": rendition.height}
    with change(session_id) as record:
        if content_id not in load_renditions(session_id, rule):
            store_file_reference(
                record,
                content_id=kept,
                path=f".mnesis/pictures/{content_id[:16]}-{rule.name}",
                file_type=RENDITION,
                size=content_size(kept),
                exploration={
                    **{"explorer": "rendition-1", "covered": "", "problem": "", "seconds": 0.0, "peak_bytes": 0},
                    RENDITION: {"of": content_id, "rule": rule.name, "media_type": rendition.media_type, **size},
                },
            )


def _render(path: Path, rule: PictureRule) -> Rendition | str:
    config = site_config().files
    limits = ExplorationLimits(seconds=config.exploration_seconds, memory_bytes=config.exploration_memory_bytes)
    return render_alone(path, rule, limits=limits)
