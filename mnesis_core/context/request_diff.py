"""The blocks of a request that a client made itself, and how they differ from those of an earlier one.

A mark for the provider's cache is no difference, nor is a text that became a list with this text: clients move their marks
with every request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from mnesis_core.context.prompt_diff import Difference
from mnesis_core.context.replay import Block, BlockKind
from mnesis_core.context.request_pictures import without_bytes
from mnesis_core.llm.tokens import MESSAGE_FRAMING, estimate_text
from mnesis_core.text import excerpt

MOST_ALIGNED = 500  # Blocks between a common beginning and end; of more, all old ones left and all new ones entered.
MOST_PARTS = 50  # of a message, each shown by itself; more are shown as their JSON
_KINDS = {BlockKind.SYSTEM: "system", BlockKind.TOOL: "tool", BlockKind.MESSAGE: "message"}


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
