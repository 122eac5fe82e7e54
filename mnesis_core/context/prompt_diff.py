"""What differs between one prompt and a later one of the same session: from their manifests, or from requests that a
client made itself.

Two prompts differ by what a model was shown, not by what was said between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain, zip_longest
from typing import Any, Literal, NamedTuple

from mnesis_core.context.entries import Row
from mnesis_core.context.replay import Block, BlockKind
from mnesis_core.errors import InvalidPicture, RemotePicture
from mnesis_core.files.pictures import SentPicture, read_data_url
from mnesis_core.llm.tokens import MESSAGE_FRAMING, estimate_text
from mnesis_core.text import excerpt

Change = Literal[
    "entered",
    "left",
    "summarised",
    "tombstoned",
    "shortened",
    "unshortened",
    "omitted",
    "unomitted",
    "answered",
    "grew",
    "reworded",
]
# ``sent``, ``not_sent`` and ``reworded`` are about requests that clients made themselves.
# ``stands_for_earlier`` is about a summary of what the earlier prompt showed; ``offered`` and ``not_offered`` are
# about tools.
Reason = Literal[
    "first_call",
    "new",
    "stands_for_earlier",
    "fits_again",
    "summarised",
    "revised",
    "over_budget",
    "pruned",
    "result_came",
    "more_parts",
    "offered",
    "not_offered",
    "other_branch",
    "sent",
    "not_sent",
    "reworded",
]
MOST_ALIGNED = 500  # Blocks between a common beginning and end; of more, all old ones left and all new ones entered.
MOST_PARTS = 50  # of a message, each shown by itself; more are shown as their JSON
_KINDS = {BlockKind.SYSTEM: "system", BlockKind.TOOL: "tool", BlockKind.MESSAGE: "message"}
MOST_PICTURES = 20  # of one message that are shown
MOST_CHARACTERS = 34_000_000  # of one in Base64; larger ones are only downloaded, with the request
DEEPEST = 4  # A picture is in a message, or in the result of a tool in one.
LONGEST_CODED = 200  # characters of Base64 that are shown as such
_CODED = re.compile(r"(?:data:[^,]{0,100};base64,)?[A-Za-z0-9+/=\s]*")
_HOLDERS = ("data", "url", "image_url", "file_data")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    change: Change
    kind: str  # ``system``, ``tool``, ``summary``, ``message`` or ``part``
    id: str  # A tool's is its name; the system prompt has none.
    reason: Reason
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    system: dict[str, Row]  # by its empty id
    tools: tuple[str, ...]
    items: dict[str, Row]  # messages and summaries by id, in order
    gap: Row | None

    @property
    def last_seq(self) -> int:
        """Return the newest message that it shows, stands for, or reports missing."""
        ends = [row["seq"] if row["kind"] == "message" else row["last_seq"] for row in self.items.values()]
        return max([*ends, self.gap["last_seq"] if self.gap else 0], default=0)


def difference(
    earlier: Sequence[Row],
    later: Sequence[Row],
    *,
    is_first: bool = False,
    replaced: Mapping[str, str] | None = None,
    elsewhere: Collection[str] = (),
) -> Iterator[Difference]:
    """Yield what entered, left, or reads differently, in the order of the prompts: system, tools, then by place.

    ``replaced`` names for messages and summaries the summary that took their place between the two, whether or not it
    is in the later prompt; ``elsewhere`` has what is not of the branch of the other call. With ``is_first`` there was no earlier call.
    """
    before, after = _side(earlier), _side(later)
    reason: Reason = "first_call" if is_first else "fits_again"
    yield from _added(before.system, after.system, change="entered", kind="system", reason=reason)
    yield from _added(after.system, before.system, change="left", kind="system", reason="over_budget")
    for id in before.system.keys() & after.system.keys():
        yield from _length_difference(_kept_ends(before.system[id]), _kept_ends(after.system[id]), kind="system", id=id)
    reason = "first_call" if is_first else "offered"
    yield from _added(after.tools, before.tools, change="left", kind="tool", reason="not_offered")
    yield from _added(before.tools, after.tools, change="entered", kind="tool", reason=reason)

    for item_id, row in before.items.items():
        if item_id not in after.items and item_id in elsewhere:
            yield Difference(change="left", kind=row["kind"], id=item_id, reason="other_branch")
        elif item_id not in after.items:
            yield _why_left(row, after, replaced or {})
    for item_id, row in after.items.items():
        if item_id not in before.items:
            why: Reason = "other_branch" if item_id in elsewhere else _why_entered(row, before, is_first)
            yield Difference(change="entered", kind=row["kind"], id=item_id, reason=why)
        elif row["kind"] == "message":
            yield from _part_differences(before.items[item_id], row)


def _side(manifest: Sequence[Row]) -> _Side:
    by_kind = {row["kind"]: row for row in manifest}
    return _Side(
        system={"": by_kind["system"]} if "system" in by_kind else {},
        tools=tuple(by_kind["tools"]["names"]) if "tools" in by_kind else (),
        items={
            row["id"]: {**row, "kind": "message"} if row["kind"] == "pinned" else row
            for row in manifest
            if row["kind"] in ("message", "pinned", "summary")
        },
        gap=by_kind.get("gap"),
    )


def _added(
    before: Iterable[str], after: Iterable[str], *, change: Change, kind: str, reason: Reason
) -> Iterator[Difference]:
    known = set(before)
    return (Difference(id=id, change=change, kind=kind, reason=reason) for id in after if id not in known)


def _why_left(row: Row, after: _Side, replaced: Mapping[str, str]) -> Difference:
    what = {"kind": row["kind"], "id": row["id"]}
    first, last = _span(row)
    summaries = (other for other in after.items.values() if other["kind"] == "summary")
    standing = next((other for other in summaries if _span(other)[0] <= first and last <= _span(other)[1]), None)
    if standing is not None and row["kind"] == "summary" and _span(standing) == (first, last):
        return Difference(change="left", reason="revised", by=standing["id"], **what)
    by = standing["id"] if standing is not None else replaced.get(row["id"], "")
    if by:
        return Difference(change="summarised", reason="summarised", by=by, **what)
    return Difference(change="left", reason="over_budget", **what)


def _span(row: Row) -> tuple[int, int]:
    return (row["seq"], row["seq"]) if row["kind"] == "message" else (row["first_seq"], row["last_seq"])


def _why_entered(row: Row, before: _Side, is_first: bool) -> Reason:
    if is_first:
        return "first_call"
    if row["kind"] == "message":
        return "new" if row["seq"] > before.last_seq else "fits_again"
    first, last = _span(row)
    covers = any(first <= _span(other)[0] and _span(other)[1] <= last for other in before.items.values())
    return "stands_for_earlier" if covers else "fits_again"


def _part_differences(before: Row, after: Row) -> Iterator[Difference]:
    if after["parts"] > before["parts"]:
        yield Difference(change="grew", kind="message", id=after["id"], reason="more_parts")
    open_before, open_now = before["unanswered"], after["unanswered"]
    yield from _added(before["tombstoned"], after["tombstoned"], kind="part", change="tombstoned", reason="pruned")
    yield from _added(open_now, open_before, kind="part", change="answered", reason="result_came")
    yield from _added(before["omitted"], after["omitted"], kind="part", change="omitted", reason="over_budget")
    yield from _added(after["omitted"], before["omitted"], kind="part", change="unomitted", reason="fits_again")

    shown, shown_now = ([one["part"] for one in row.get("pictures", ())] for row in (before, after))
    yield from _added(shown_now, shown, kind="picture", change="omitted", reason="over_budget")
    yield from _added(shown, shown_now, kind="picture", change="unomitted", reason="fits_again")

    cuts, cut_now = _kept_characters(before), _kept_characters(after)
    hidden = {*before["omitted"], *after["omitted"]}
    for part in dict.fromkeys([*cuts, *cut_now]):
        if part not in hidden:
            yield from _length_difference(cuts.get(part), cut_now.get(part), kind="part", id=part)


def _kept_characters(row: Row) -> dict[str, int]:
    kept: dict[str, int] = {}
    for cut in row["shortened"]:
        kept[cut["part"]] = kept.get(cut["part"], 0) + cut["head"] + cut["tail"]
    return kept


def _kept_ends(row: Row) -> int | None:
    """Return how many characters remain of a shortened text; ``None`` for a whole one."""
    return row["head"] + row["tail"] if "head" in row else None


def _length_difference(before: int | None, after: int | None, **what: Any) -> Iterator[Difference]:
    if before == after:
        return
    if before is None or (after is not None and after < before):
        yield Difference(change="shortened", reason="over_budget", **what)
    else:
        yield Difference(change="unshortened", reason="fits_again", **what)


# The blocks of a request that a client made itself, and how they differ from those of an earlier one.
#
# A mark for the provider's cache is no difference, nor is a text that became a list with this text: clients move their
# marks with every request.


class Piece(NamedTuple):
    key: str  # The same for two pieces that say the same.
    place: int  # among those of its kind, from 1
    block: Block
    source: Mapping[str, Any]  # as the client sent it


class RequestChange(NamedTuple):
    difference: Difference
    block: Block  # of the later request, else of the earlier one
    tokens: int  # by how many the request grew
    place: int


def pieces_of(payload: Mapping[str, Any]) -> list[Piece]:
    """Return what a request holds, whatever a client wrote: its tools, then what opens it, then its messages."""
    said = payload.get("messages", payload.get("input"))
    said = [{"role": "user", "content": said}] if isinstance(said, str) else said
    opening = [{"role": "system", "content": payload[name]} for name in ("system", "instructions") if payload.get(name)]
    found = []
    for tool in _objects(payload.get("tools")):
        inner = tool.get("function")
        name = (inner if isinstance(inner, Mapping) else tool).get("name") or tool.get("type") or ""
        text = json.dumps(tool, ensure_ascii=False)
        texts, tokens = (("text", text),), estimate_text(text)
        found.append((tool, Block(kind=BlockKind.TOOL, role="", name=str(name), texts=texts, tokens=tokens)))
    found += [(message, _block_of_message(message)) for message in (*opening, *_objects(said))]
    counts = dict.fromkeys(_KINDS, 0)
    pieces = []
    for source, block in found:
        counts[block.kind] += 1
        pieces.append(Piece(_key(source), counts[block.kind], block, source))
    return pieces


def compare_requests(earlier: Sequence[Piece] | None, later: Sequence[Piece]) -> Iterator[RequestChange]:
    """Yield what entered, left or reads differently: what opens the request, tools, messages.

    :param earlier: None where there was no earlier request
    """
    for kind in _KINDS:
        before, after = ([piece for piece in side if piece.block.kind is kind] for side in (earlier or (), later))
        for old, new in _unlike(before, after):
            yield _change(old, new, is_first=earlier is None)


def _change(old: Piece | None, new: Piece | None, *, is_first: bool) -> RequestChange:
    piece = new or old
    assert piece is not None  # noqa: S101 - one of them is there
    kind, id = _KINDS[piece.block.kind], piece.block.name or str(piece.place)
    if old is None:
        difference = Difference(change="entered", kind=kind, id=id, reason="first_call" if is_first else "sent")
    elif new is None:
        difference = Difference(change="left", kind=kind, id=id, reason="not_sent")
    else:
        difference = Difference(change="reworded", kind=kind, id=id, reason="reworded")
    tokens = (new.block.tokens if new else 0) - (old.block.tokens if old else 0)
    return RequestChange(difference, piece.block, tokens, piece.place)


def _unlike(before: Sequence[Piece], after: Sequence[Piece]) -> Iterator[tuple[Piece | None, Piece | None]]:
    least = min(len(before), len(after))
    first = next((at for at in range(least) if before[at].key != after[at].key), least)
    rest = least - first
    last = next((at for at in range(rest) if before[-1 - at].key != after[-1 - at].key), rest)
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    if max(len(old), len(new)) > MOST_ALIGNED:
        yield from ((piece, None) for piece in old)
        yield from ((None, piece) for piece in new)
        return
    steps = SequenceMatcher(None, [one.key for one in old], [one.key for one in new], autojunk=False).get_opcodes()
    changed = (zip_longest(old[a:b], new[c:d]) for step, a, b, c, d in steps if step != "equal")
    for one, other in chain.from_iterable(changed):
        if one and other and (one.block.role, one.block.name) != (other.block.role, other.block.name):
            yield one, None
            yield None, other
        else:
            yield one, other


def _key(value: Mapping[str, Any]) -> str:
    plain = _unmarked(value)
    content = plain.get("content")
    if isinstance(content, str):
        plain["content"] = [{"type": "text", "text": content}]
    elif isinstance(content, list):
        plain["content"] = [_unmarked(block) if isinstance(block, Mapping) else block for block in content]
    return json.dumps(plain, sort_keys=True)


def _unmarked(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name != "cache_control"}


def _block_of_message(message: Mapping[str, Any]) -> Block:
    role, content = str(message.get("role") or message.get("type") or ""), message.get("content", message)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    # What each part says, under its place and type, or the JSON that it is; no name comes twice.
    texts = []
    for place, part in enumerate(content if isinstance(content, list) and len(content) <= MOST_PARTS else (), start=1):
        plain = _unmarked(part) if isinstance(part, Mapping) else {}
        if isinstance(plain.get("text"), str) and plain.keys() == {"type", "text"}:
            texts.append(("text" if place == 1 else f"{place}. text", str(plain["text"])))
        else:
            name = f"{place}. {excerpt(str(plain.get('type', '')), 40)}"
            texts.append((name, json.dumps(without_bytes(part), ensure_ascii=False)))
    kind, tokens = BlockKind.SYSTEM if role == "system" else BlockKind.MESSAGE, MESSAGE_FRAMING + estimate_text(text)
    return Block(kind=kind, role=role, texts=tuple(texts) or (("text", text),), tokens=tokens)


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


# The pictures inside a message or a result that a client sent, in the forms of Anthropic's and OpenAI's protocols.


def pictures_in(value: Any, depth: int = 0) -> Iterator[SentPicture]:
    """Yield pictures in order, told by their bytes. One at an address is left out, since nothing is fetched."""
    if isinstance(value, list) and depth < DEEPEST:
        for item in value:
            yield from pictures_in(item, depth + 1)
    elif isinstance(value, Mapping) and value.get("type") in ("image", "image_url", "input_image"):
        source, url = value.get("source"), value.get("image_url")
        url = url.get("url") if isinstance(url, Mapping) else url
        if isinstance(source, Mapping):
            url = f"data:;base64,{source.get('data', '')}" if source.get("type") == "base64" else ""
        if isinstance(url, str) and len(url) <= MOST_CHARACTERS:
            with suppress(InvalidPicture, RemotePicture):
                yield read_data_url(url, place="picture")
    elif isinstance(value, Mapping):
        for name in ("content", "output"):
            yield from pictures_in(value.get(name), depth + 1)


def without_bytes(value: Any, depth: int = 0) -> Any:
    """Return a part of a message with the number of characters in place of long Base64, where protocols have it."""
    if isinstance(value, list) and depth < 2 * DEEPEST:
        return [without_bytes(item, depth + 1) for item in value]
    if isinstance(value, Mapping) and depth < 2 * DEEPEST:
        return {
            name: _shortened(item) if name in _HOLDERS and isinstance(item, str) else without_bytes(item, depth + 1)
            for name, item in value.items()
        }
    return value


def _shortened(text: str) -> str:
    is_coded = len(text) > LONGEST_CODED and _CODED.fullmatch(text)
    return f"{text[:40]}… {len(text):,} characters" if is_coded else text
