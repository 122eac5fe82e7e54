"""The manifest of a prompt as a call's row keeps it: folded, so that the row does not grow with the context.

A prompt shows nearly all of its session's context as of one event, in order and whole, and what that context was is one
query. So one row of kind ``context`` stands in the place of the rows of messages and summaries. It says what does not
follow from the context by the rules of its form; they read rows of years ago, so they never change and use no decision of
assembly. Where assembly decides otherwise the row says more. Other rules are another form, beside this one.

Form 2 is form 1 with the number of the branch whose context it was, where that is not branch 0.

Form 1. Items are counted from 0 in the order of the context, parts over all its messages, tombstones over all of these.

* Every summary is shown, and every message that a user said or that has a part of one of the types in ``_SHOWN``.
* A message is shown with all of its parts, each output that had left the context as a tombstone that names no file.

=============  ================================================================================================
``items``      how many items the context had
``parts``      how many parts their messages had
``unlike``     items that are shown although the rules leave them out, or the other way round
``empty``      messages that had no parts; only such a message, whose answer is not written yet, can get any later
``unanswered`` parts: tool calls without a result
``omitted``    parts that are left out
``named``      tombstones that name the files of their output
``returned``   parts that went back to the provider that gave them
``shortened``  four lists: parts (each as its distance from the one before), fields by their place in ``_FIELDS``, heads
               and tails
``notes``      pairs of the number of items shown before it, and a row of another kind, such as a gap
``rows``       pairs of an item and its row, where that says something else than all this
``packed``     the JSON of all these but the first two, compressed, in base 64, where it is long
=============  ================================================================================================

A set of numbers is kept as lengths of runs: so many that are not in it, so many that are, and so on by turns.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

from mnesis_core.context.entries import BESIDE, ContextEntry, Row, SummaryEntry, in_order, read_manifest
from mnesis_core.messages import ToolPart

FORMS = ((1, False), (2, True))  # each with whether it names a branch
LONGEST_PLAIN = 200  # characters of JSON that are kept as they are
LARGEST_PACKED = 2**22  # bytes of JSON: far more than the exceptions of any prompt, and no bomb
_SHOWN = frozenset({"text", "refusal", "tool", "provider_tool", "file_ref", "image", "audio", "document", "patch"})
_FIELDS = ("text", "input", "output", "arguments")
_ITEMS = ("message", "summary")
_SETS = ("unlike", "empty", "unanswered", "omitted", "named", "returned")
_MESSAGE_KEYS = 8  # of a row without ``naming`` and ``opaque``
_Cut = tuple[int, int, int]  # the place of the field in ``_FIELDS``, and the characters of head and tail


class ItemOutline(NamedTuple):
    """A message or summary that was in a session's context, without its texts."""

    id: str
    role: str | None  # None for a summary
    first_seq: int
    last_seq: int  # the messages that it is or stands for
    part_ids: tuple[str, ...] = ()
    part_types: tuple[str, ...] = ()
    compacted: tuple[tuple[str, int], ...] = ()  # the parts whose outputs became tombstones, each with the event
    added_seq: int = 0
    removed_seq: int | None = None
    branch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marks:
    """What is unusual about the parts of messages, by their numbers."""

    unanswered: set[int] = field(default_factory=set)
    omitted: set[int] = field(default_factory=set)
    named: set[int] = field(default_factory=set)  # numbers of tombstones
    returned: set[int] = field(default_factory=set)
    cuts: Mapping[int, list[_Cut]] = field(default_factory=dict)


_NONE = _Marks()


def is_folded(stored: object) -> bool:
    rows = stored if isinstance(stored, list) else []
    return any(isinstance(row, Mapping) and row.get("kind") == "context" for row in rows)


def branch_of(stored: Sequence[Row]) -> int:
    """Return the branch whose context a stored manifest folds; 0 for one that is not folded."""
    return next((row.get("branch", 0) for row in stored if row["kind"] == "context"), 0)


def entries_before(stored: Sequence[Row], entries: Sequence[ContextEntry]) -> list[ContextEntry]:
    """Return the first entries of a context, as many as there were when a prompt's manifest was folded."""
    items = next((row["items"] for row in stored if row["kind"] == "context"), 0)
    return in_order(entries)[:items]


# Folding


def fold_manifest(manifest: Sequence[Row], entries: Sequence[ContextEntry], *, branch: int = 0) -> list[Row]:
    """Return the form in which a call keeps the manifest of a prompt that was assembled from these entries of a branch.

    A manifest whose items are not in the order of the context is kept as it is.
    """
    opening = list(takewhile(lambda row: row["kind"] not in _ITEMS, manifest))
    fold = _Fold()
    waiting: list[Row] = []
    for row in manifest[len(opening) :]:
        if row["kind"] in _ITEMS:
            waiting.append(row)
        else:
            fold.notes.append([len(waiting), row])
    shown = iter(waiting)
    row_now = next(shown, None)
    for item in outlines_of(entries):
        if row_now is None or row_now["id"] != item.id:
            fold.add(item, None)
        else:
            fold.add(item, row_now)
            row_now = next(shown, None)
    return [*opening, fold.row(branch)] if row_now is None else list(manifest)


def outlines_of(entries: Sequence[ContextEntry]) -> Iterator[ItemOutline]:
    """Yield the outlines of a context as it was read; they have no events, so they are right for any."""
    for entry in in_order(entries):
        if isinstance(entry, SummaryEntry):
            yield ItemOutline(entry.id, None, entry.first_seq, entry.last_seq)
            continue
        message, parts = entry.message, entry.message.parts
        ids = tuple([stored.id for stored in parts])
        types = tuple([stored.part.type for stored in parts])
        tools = [(stored.id, stored.part) for stored in parts if isinstance(stored.part, ToolPart)]
        compacted = tuple([(id, 0) for id, part in tools if part.compacted_at is not None]) if tools else ()
        yield ItemOutline(message.id, message.role, message.seq, message.seq, ids, types, compacted)


@dataclass(slots=True, kw_only=True)
class _Fold:
    """The row ``context`` while it is made, item by item."""

    items: int = 0
    parts: int = 0
    tombstones: int = 0
    unlike: list[int] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)
    unanswered: list[int] = field(default_factory=list)
    omitted: list[int] = field(default_factory=list)
    named: list[int] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)
    cuts: list[tuple[int, int, int, int]] = field(default_factory=list)  # each behind the number of its part
    notes: list[list[Any]] = field(default_factory=list)  # pairs, as JSON has them
    rows: list[list[Any]] = field(default_factory=list)

    def add(self, item: ItemOutline, row: Row | None) -> None:
        """Add the next item of the context; ``row`` is how the prompt shows it, if it does."""
        ids = item.part_ids
        gone = [id for id, _ in item.compacted]
        if item.role is not None and not ids:
            self.empty.append(self.items)
        if _is_expected(item, item.part_types) is (row is None):
            self.unlike.append(self.items)
        if row is not None and not _is_usual(row, item, gone):
            self._note(item, row, gone)
        self.items += 1
        self.parts += len(ids)
        self.tombstones += len(gone)

    def _note(self, item: ItemOutline, row: Row, gone: list[str]) -> None:
        marks = _marks_of(row, item.part_ids, gone)
        if marks is None or row != _row_of(item, item.part_ids, gone, marks):
            self.rows.append([self.items, row])
            return
        self.unanswered += (self.parts + number for number in sorted(marks.unanswered))
        self.omitted += (self.parts + number for number in sorted(marks.omitted))
        self.named += (self.tombstones + number for number in sorted(marks.named))
        self.returned += (self.parts + number for number in sorted(marks.returned))
        self.cuts += ((self.parts + number, *cut) for number in sorted(marks.cuts) for cut in marks.cuts[number])

    def row(self, branch: int) -> dict[str, Any]:
        place = {"form": 2, "branch": branch} if branch else {"form": 1}
        row: dict[str, Any] = {"kind": "context", **place, "items": self.items, "parts": self.parts}
        said: dict[str, Any] = {name: _runs(numbers) for name in _SETS if (numbers := getattr(self, name))}
        if self.cuts:
            parts, *columns = map(list, zip(*self.cuts, strict=True))
            steps = [number - before for number, before in zip(parts, [0, *parts], strict=False)]
            said["shortened"] = [steps, *columns]
        said |= {name: pairs for name in ("notes", "rows") if (pairs := getattr(self, name))}
        text = json.dumps(said, separators=(",", ":"))
        is_long = len(text) > LONGEST_PLAIN
        return row | ({"packed": base64.b64encode(zlib.compress(text.encode(), 9)).decode()} if is_long else said)


def _is_expected(item: ItemOutline, types: Iterable[str]) -> bool:
    return item.role in (None, "user") or not _SHOWN.isdisjoint(types)


def _is_usual(row: Row, item: ItemOutline, gone: list[str]) -> bool:
    if item.role is None:
        return row == _row_of(item, (), [], _NONE)
    return (
        row["parts"] == len(item.part_ids)
        and row["tombstoned"] == gone
        and not (row["unanswered"] or row["shortened"] or row["omitted"])
        and row["seq"] == item.first_seq
        and len(row) == _MESSAGE_KEYS
    )


def _marks_of(row: Row, ids: Sequence[str], gone: Sequence[str]) -> _Marks | None:
    """Return what is unusual about a message's row, numbered within the message; ``None`` if it names what is not there."""
    places = {id: number for number, id in enumerate(ids)}
    ranks = {id: number for number, id in enumerate(gone)}
    cuts: dict[int, list[_Cut]] = defaultdict(list)
    try:
        for cut in row["shortened"]:
            cuts[places[cut["part"]]].append((_FIELDS.index(cut["field"]), cut["head"], cut["tail"]))
        return _Marks(
            unanswered={places[id] for id in row["unanswered"]},
            omitted={places[id] for id in row["omitted"]},
            named={ranks[id] for id in row.get("naming", ())},
            returned={places[id] for id in row.get("opaque", ())},
            cuts=cuts,
        )
    except (KeyError, ValueError):
        return None


def _runs(numbers: Sequence[int]) -> list[int]:
    runs: list[int] = []
    end = 0
    for number in numbers:
        if runs and number == end:
            runs[-1] += 1
        else:
            runs += [number - end, 1]
        end = number + 1
    return runs


# Unfolding


def unfold_manifest(manifest: Sequence[Row], items: Iterable[ItemOutline], *, at: int) -> list[Row]:
    """Return every row of a stored manifest that ``read_manifest`` has checked; one that is not folded is complete.

    ``items`` are those of the session's context as of event ``at``, in order; others among them do no harm.

    :raises ValueError: a later version wrote it, or the context was not the one that it describes.
    """
    standing = [item for item in items if item.added_seq <= at and (item.removed_seq is None or at < item.removed_seq)]
    rows: list[Row] = []
    for row in manifest:
        rows += _rows_of(row, standing, at) if row["kind"] == "context" else [row]
    return rows


def rows_beside(stored: object) -> list[Row]:
    """Return the rows of messages that a stored manifest shows beside the items of its context, one for each message.

    Rows of these kinds are whole in a folded manifest too, so that this needs no context. One that quotes from several
    messages has a list of ``lines`` with their ids, and each line counts as a row.

    :raises ValueError: it is no manifest, or a later version wrote it.
    """
    rows = [row for row in _whole_rows(stored, "notes") if row["kind"] in BESIDE]
    return [{**shown, "kind": row["kind"]} for row in rows for shown in row.get("lines", (row,))]


def parts_with_pictures(stored: object) -> set[str]:
    """Return the parts whose pictures a stored manifest shows. Their rows are whole in a folded one: no context is needed.

    :raises ValueError: it is no manifest, or a later version wrote it.
    """
    rows = _whole_rows(stored, "notes", "rows")
    return {shown["part"] for row in rows for shown in row.get("pictures", ())}


def _whole_rows(stored: object, *names: str) -> Iterator[Row]:
    for row in read_manifest(stored):
        if row["kind"] != "context":
            yield row
            continue
        said = _read_folded(row)
        for name in names:
            yield from (kept for _, kept in _pairs(said.get(name, [])))


def _rows_of(folded: Row, items: Sequence[ItemOutline], at: int) -> list[Row]:
    said = _read_folded(folded)
    most = max(len(items), sum(len(item.part_ids) for item in items))
    sets = {name: _numbers(said.get(name, []), most) for name in _SETS}
    unlike, empty = sets.pop("unlike"), sets.pop("empty")
    marks = _Marks(cuts=_cuts_of(said.get("shortened")), **sets)
    notes, own = list(_pairs(said.get("notes", []))), dict(_pairs(said.get("rows", [])))

    rows: list[Row] = []
    parts = tombstones = 0
    for number, item in enumerate(items):
        ids, types = ((), ()) if number in empty else (item.part_ids, item.part_types)
        gone = [id for id, seq in item.compacted if seq <= at]
        if _is_expected(item, types) is (number not in unlike):
            rows.append(own[number] if number in own else _row_of(item, ids, gone, marks, parts, tombstones))
        parts += len(ids)
        tombstones += len(gone)
    if (len(items), parts) != (folded["items"], folded["parts"]):
        was, told = f"{len(items)} items with {parts} parts", f"{folded['items']} with {folded['parts']}"
        raise ValueError(f"the context as of event {at} had {was}, and the manifest tells of {told}")
    for place, note in reversed(notes):
        rows.insert(place, note)
    return rows


def _row_of(
    item: ItemOutline, ids: Sequence[str], gone: list[str], marks: _Marks, first: int = 0, first_gone: int = 0
) -> dict[str, Any]:
    """Return the row of an item that is shown, whose first part and first tombstone have these numbers."""
    if item.role is None:
        return {"kind": "summary", "id": item.id, "first_seq": item.first_seq, "last_seq": item.last_seq}
    row = {
        "kind": "message",
        "id": item.id,
        "seq": item.first_seq,
        "parts": len(ids),
        "tombstoned": gone,
        "unanswered": _chosen(ids, marks.unanswered, first) if marks.unanswered else [],
        "shortened": [
            {"part": id, "field": _FIELDS[place], "head": head, "tail": tail}
            for number, id in (enumerate(ids, first) if marks.cuts else ())
            for place, head, tail in marks.cuts.get(number, ())
        ],
        "omitted": _chosen(ids, marks.omitted, first) if marks.omitted else [],
    }
    # Keys that most rows do not have.
    if naming := _chosen(gone, marks.named, first_gone):
        row["naming"] = naming
    if opaque := _chosen(ids, marks.returned, first):
        row["opaque"] = opaque
    return row


def _chosen(ids: Sequence[str], numbers: set[int], first: int) -> list[str]:
    return [id for number, id in enumerate(ids, first) if number in numbers] if numbers else []


def _read_folded(folded: Row) -> Row:
    if (folded["form"], "branch" in folded) not in FORMS:
        raise ValueError(f"the manifest is of form {folded['form']}, which this version does not know")
    if "packed" not in folded:
        return folded
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(base64.b64decode(folded["packed"], validate=True), LARGEST_PACKED)
        said = json.loads(text) if unpacking.eof else None
    except (ValueError, TypeError, RecursionError, zlib.error):
        said = None
    if not isinstance(said, dict):
        raise ValueError("what the manifest packs cannot be read")
    return said


def _numbers(runs: object, most: int) -> set[int]:
    numbers: set[int] = set()
    end = 0
    lengths = _whole_numbers(runs)
    for absent, present in zip(lengths[::2], lengths[1::2], strict=True):
        start = end + absent
        end = start + present
        if end > most:
            raise ValueError("the manifest tells of more than the context had")
        numbers.update(range(start, end))
    return numbers


def _cuts_of(columns: object) -> Mapping[int, list[_Cut]]:
    cuts: dict[int, list[_Cut]] = defaultdict(list)
    if columns is None:
        return cuts
    if not isinstance(columns, list) or len(columns) != 4:
        raise ValueError("the manifest does not tell what is shortened")
    part = 0
    for step, place, head, tail in zip(*map(_whole_numbers, columns), strict=True):
        part += step
        if place >= len(_FIELDS):
            raise ValueError("the manifest shortens a field that there is not")
        cuts[part].append((place, head, tail))
    return cuts


def _whole_numbers(values: object) -> list[int]:
    if not isinstance(values, list) or not all(type(value) is int and value >= 0 for value in values):
        raise ValueError("the manifest has something else than numbers")
    return values


def _pairs(pairs: object) -> Iterator[tuple[int, Row]]:
    """Yield the rows that are kept whole, checked, each with its number."""
    if not isinstance(pairs, list):
        raise ValueError("the manifest keeps no rows")
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError("the manifest keeps rows without numbers")
        [number], [row] = _whole_numbers(pair[:1]), read_manifest(pair[1:])
        if row["kind"] == "context":
            raise ValueError("a context is folded into another")
        yield number, row
