"""The choice of the pictures of a context that a model sees; of the others it gets descriptions.

The text of a picture's part, with the id of its file, is always in the prompt: it is what stays of a picture that has
left, so that a file tool can bring the picture back. The oldest leave first. As each leaves the prompt for lack of room among
pictures, half of the room is made free at once: so the beginning of a prompt stays the same for many calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mnesis_core.context.continuation import is_question
from mnesis_core.context.entries import ContextEntry, LeftOut, MessageEntry, Picture
from mnesis_core.context.fitting import Item
from mnesis_core.context.wording import LENGTH_FIELDS, PICTURE_FIELDS
from mnesis_core.files.pictures import AUDIO_KIND, PDF_KIND, PICTURE_KIND, kind_of
from mnesis_core.messages import (
    AudioPart,
    DocumentPart,
    FileRefPart,
    ImagePart,
    Part,
    ShownPart,
    StoredMessage,
    StoredPart,
    ToolPart,
)

SHOWN_KINDS = (PICTURE_KIND, PDF_KIND, AUDIO_KIND)
# With PDFs and audio. Anthropic takes smaller ones only where there are more, and every other provider takes as many.
MOST_PICTURES = 20
SHARE = 2  # Pictures take at most one part in so many of what is usable.
MOST_PAGES_TOGETHER = 100  # of the PDFs of one prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    item_id: str
    part_id: str
    picture: Picture


def picture_file(message: StoredMessage, stored: StoredPart, kinds: Collection[str] = SHOWN_KINDS) -> str:
    """Return the id of the file whose picture, PDF or audio a part can show to a model, or an empty text.

    Providers take pictures from the user, and as what a call gave back. The user shows those that a model made.
    """
    part = stored.part
    if kind_shown(part) not in kinds:
        return ""
    if isinstance(part, ShownPart):
        calls = (other.part for other in message.parts if isinstance(other.part, ToolPart))
        # With an error, Anthropic takes texts only.
        is_result = part.tool_call_id and any(
            call.tool_call_id == part.tool_call_id and call.compacted_at is None and call.error is None
            for call in calls
        )
        is_made = message.role == "assistant" and not part.tool_call_id and isinstance(part, ImagePart)
        return part.file_id if message.role == "user" or is_result or is_made else ""
    return part.file_id if isinstance(part, FileRefPart) and message.role == "user" else ""


def kind_shown(part: Part) -> str:
    """Return the kind of what a part shows: a picture, a PDF, audio, or nothing."""
    if isinstance(part, FileRefPart):
        return part.file_type
    if isinstance(part, DocumentPart | AudioPart):
        return kind_of(part.media_type)
    return PICTURE_KIND if isinstance(part, ImagePart) else ""


def picture_files(entries: Sequence[ContextEntry], kinds: Collection[str]) -> tuple[str, ...]:
    """Return the ids of the files of these kinds that these messages can show, each once, in order."""
    messages = (entry.message for entry in entries if isinstance(entry, MessageEntry))
    found = (picture_file(message, stored, kinds) for message in messages for stored in message.parts)
    return tuple(dict.fromkeys(filter(None, found)))


def with_pictures(
    items: Sequence[Item], pictures: Mapping[str, Picture], *, usable: int, room: int, most_bytes: int
) -> tuple[list[Item], list[LeftOut]]:
    """Return the items with the pictures that go with them, and the pictures that are left out.

    :param pictures: by the ids of their files
    :param usable: tokens of the whole prompt
    :param room: tokens that everything else leaves; the pictures of the newest question may take more
    :param most_bytes: of all pictures, as the model's ``PictureRule`` says
    """
    groups = [group for item in items if pictures and (group := list(_pictures_of(item, pictures)))]
    if not groups:
        return list(items), []
    newest = next((item.row["id"] for item in reversed(items) if is_question(item)), "")
    kept = _within_limits(groups, usable // SHARE, most_bytes)
    while kept and kept[0].item_id != newest and sum(shown.picture.tokens for shown in kept) > room:
        del kept[0]
    chosen = {(shown.item_id, shown.part_id) for shown in kept}
    left = [shown for group in groups for shown in group if (shown.item_id, shown.part_id) not in chosen]
    found = []
    for item in items:
        own = [shown for shown in kept if shown.item_id == item.row["id"]]
        row = {**item.row, "pictures": [{"part": shown.part_id, **_row_of(shown.picture)} for shown in own]}
        tokens = sum(shown.picture.tokens for shown in own)
        cost = item.cost | {"files": item.cost.get("files", 0) + tokens}
        found.append(replace(item, row=row, cost=cost, tokens=item.tokens + tokens) if own else item)
    return found, [LeftOut(id=shown.part_id, kind="picture", reason="over_budget") for shown in left]


def _pictures_of(item: Item, pictures: Mapping[str, Picture]) -> Iterator[_Shown]:
    if isinstance(item.entry, MessageEntry):
        message = item.entry.message
        for stored in message.parts:
            if (file_id := picture_file(message, stored)) in pictures:
                yield _Shown(item_id=message.id, part_id=stored.id, picture=pictures[file_id])


def _within_limits(groups: Sequence[Sequence[_Shown]], tokens: int, most_bytes: int) -> list[_Shown]:
    kept: list[_Shown] = []
    for group in groups:
        kept += group
        if _is_over(kept, tokens, most_bytes, 1):
            while len(kept) > len(group) and _is_over(kept, tokens, most_bytes, 2):
                del kept[0]
            while kept and _is_over(kept, tokens, most_bytes, 1):
                del kept[0]
    return kept


def _is_over(kept: Sequence[_Shown], tokens: int, most_bytes: int, share: int) -> bool:
    """Return whether pictures take more than one part in ``share`` of their limits."""
    return (
        len(kept) * share > MOST_PICTURES
        or sum(shown.picture.tokens for shown in kept) * share > tokens
        or sum(shown.picture.size for shown in kept) * share > most_bytes
        or sum(shown.picture.pages for shown in kept) * share > MOST_PAGES_TOGETHER
    )


def _row_of(picture: Picture) -> dict[str, Any]:
    known = asdict(picture)
    lengths = {name: known[name] for name in LENGTH_FIELDS if known[name]}
    return {name: known[name] for name in PICTURE_FIELDS} | lengths
