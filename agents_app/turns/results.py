"""The result of a tool call as the record keeps it: its text, the file of a long one, and the files of its pictures; and the
pictures that a model makes itself.

What waits for the disk happens in ``prepare_result``, before the lock of the session is taken; ``write_result`` writes
everything in one change, so that no model is sent a result without its pictures. So it is with ``prepare_made``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from files_app.contents import put_content
from files_app.intake import add_file, prepare_file
from mnesis_core.context.fitting import OUTPUTS, shorten_output
from mnesis_core.errors import FileQuotaExceeded, RequestTooLarge
from mnesis_core.files.detection import kind_of_text
from mnesis_core.files.pictures import PICTURE_KIND, SentPicture, kind_of, part_of_sent, picture_of
from mnesis_core.llm.interface import MadePicture
from mnesis_core.llm.tokens import estimate_part, estimate_text
from mnesis_core.messages import ImagePart, Part, ShownPart
from mnesis_core.text import bytes_of_text
from sessions_app.record import message_store
from sessions_app.record.change import Change

MOST_PICTURES = 20  # of one result; no more are shown at once
NO_PICTURE = "The model sent a picture that cannot be shown. The data is kept as received."
P = TypeVar("P")
AddLong = Callable[[Change, str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedResult:
    """A result whose contents are on disk: ``text`` is the output, or the error if the call failed."""

    text: str
    is_error: bool
    add_long: AddLong | None
    # Each part, with what ``add_file`` takes of a new file.
    pictures: tuple[tuple[ShownPart, dict[str, Any] | None], ...] = ()


def prepare_result(
    text: str, *, is_error: bool, inline: int, owner_id: int, pictures: Sequence[SentPicture] = ()
) -> PreparedResult:
    """Store the contents of a result. A picture that cannot be kept is named in its text, with the reason.

    :param inline: the characters above which a text becomes a file, whose two ends stay in the conversation
    """
    kept: list[tuple[ShownPart, dict[str, Any] | None]] = []
    problems: list[str] = []
    for number, sent in enumerate({sent.name: sent for sent in pictures}.values()):
        if number == MOST_PICTURES:
            problems.append(f"[The other pictures were not kept: a result may have {MOST_PICTURES}.]")
            break
        part = part_of_sent(sent, size=sent.size or len(sent.data), name=sent.name, file_id=sent.file_id)
        if part.file_id:
            kept.append((part, None))
            continue
        try:
            kept.append((part, prepare_file(sent.data, owner_id=owner_id, path=f"{OUTPUTS}{sent.name}")))
        except (FileQuotaExceeded, RequestTooLarge) as problem:
            problems.append(f"[{sent.name} was not kept: {problem.code}: {problem.message}]")
    said = "\n".join(filter(None, (text, *problems)))
    return PreparedResult(text=said, is_error=is_error, add_long=_keep_long_result(said, inline), pictures=tuple(kept))


def _keep_long_result(text: str, characters: int) -> AddLong | None:
    """Store the content of a result longer than ``characters``.

    Return what makes it a file of the session, for a part, and returns the two ends that stay in the conversation.
    """
    if len(text) <= characters:
        return None
    data = bytes_of_text(text)
    content_id, kind, size, tokens = put_content(data), kind_of_text(data), len(data), estimate_text(text)

    def add(record: Change, part_id: str) -> str:
        path = f"{OUTPUTS}{part_id}{kind.suffixes[0]}"
        file_id = add_file(record, content_id=content_id, path=path, file_type=kind.name, token_count=tokens, size=size)
        return shorten_output(text, characters, file_id=file_id)

    return add


def write_result(record: Change, part_id: str, result: PreparedResult) -> int:
    """Write the result of a tool call, once; return the estimated tokens that it adds to the context."""
    kept = result.add_long(record, part_id) if result.add_long else result.text
    said = {"output": None, "error": kept} if result.is_error else {"output": kept, "error": None}
    message_store.finish_tool(record, part_id, **said)
    pictures = [
        message_store.add_to_result(record, part_id, part, add_file(record, **about) if about else part.file_id)
        for part, about in result.pictures
    ]
    return estimate_text(kept) + sum(map(estimate_part, pictures))


# Pictures that a model makes


def made_part(made: MadePicture) -> ShownPart:
    """Return the part of what a model gave for a picture, whatever it is, before it is a file."""
    sent = picture_of(made.data)
    if sent is not None and kind_of(sent.media_type) == PICTURE_KIND:
        return part_of_sent(sent, name=sent.name, size=len(made.data))
    name = f"picture-{hashlib.sha256(made.data).hexdigest()[:12]}.bin" if made.data else "picture"
    said = made.problem or NO_PICTURE
    return ImagePart(name=name, size=len(made.data), source=made.source, caption=said)


def prepare_made(
    parts: Sequence[Part], made: Mapping[int, MadePicture], *, owner_id: int
) -> dict[int, tuple[ShownPart, dict[str, Any] | None]]:
    """Store the contents of pictures; return each part, by its place, with what ``add_file`` takes. One that cannot be kept
    says so."""
    kept: dict[int, tuple[ShownPart, dict[str, Any] | None]] = {}
    for place, picture in made.items():
        part = parts[place]
        if not picture.data or not isinstance(part, ShownPart):
            continue
        try:
            kept[place] = (part, prepare_file(picture.data, owner_id=owner_id, path=f"{OUTPUTS}{part.name}"))
        except (FileQuotaExceeded, RequestTooLarge) as problem:
            said = f"The picture was not kept: {problem.code}: {problem.message}"
            kept[place] = (replace(part, caption=said), None)
    return kept


def write_made(
    record: Change, parts: Sequence[P], pictures: Mapping[int, tuple[ShownPart, dict[str, Any] | None]]
) -> list[P | ShownPart]:
    """Make files of pictures; return the parts of the answer with them."""
    found: list[P | ShownPart] = list(parts)
    for place, (part, about) in pictures.items():
        found[place] = replace(part, file_id=add_file(record, **about)) if about else part
    return found
