"""The ChatGPT data export: ``conversations.json``, a list of conversations, each of them a tree.

A path from the root that takes the first child each time is branch 0; edited questions and second answers are other
branches, in the order in which they leave it. So a later export of the same conversation only adds branches, and longer ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from mnesis_core.errors import gettext_noop
from mnesis_core.messages import (
    AudioPart,
    CitationPart,
    DataPart,
    ImagePart,
    MediaPart,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolPart,
)
from mnesis_core.transcripts.building import (
    BRANCHES,
    MessageDraft,
    Tally,
    TranscriptDraft,
    data_part,
    family_of,
    read_families,
)
from mnesis_core.transcripts.reading import (
    count_in,
    identifier,
    kind_of_media,
    list_in,
    mapping_in,
    one_line,
    text_in,
    time_of,
)
from mnesis_core.transcripts.values import NamedSource, ParseResult, Progress, Source

FORMAT = "chatgpt"
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
ADRIFT = gettext_noop(
    "nodes name a parent that is not there, or hang in a circle; they are a branch from the beginning"
)
_EVERYBODY = ("", "all")
_EPOCH = datetime.fromtimestamp(0, UTC)
_THOUGHT_FIELDS = ("summary", "content")
_PLACE_FIELDS = {"id", "message", "parent", "children"}
_POINTER_FIELDS = {"content_type", "asset_pointer", "size_bytes", "width", "height", "format"}
# Custom instructions and memory, written under the roles user and assistant.
_CONTEXT_TYPES = ("user_editable_context", "model_editable_context")


def parse(
    source: Source, *, name: str = "", companions: Sequence[NamedSource] = (), progress: Progress | None = None
) -> ParseResult:
    """:raises InvalidRequest: it holds no conversation"""
    tally = Tally(FORMAT)
    conversations = read_families(
        tally, source, companions, progress, name=name, element="conversation", key="mapping", read=_read
    )
    return ParseResult(transcripts=tuple(map(family_of, conversations)), report=tally.report())


def _read(conversation: dict[str, Any], tally: Tally) -> list[TranscriptDraft]:
    tally.read("conversation")
    tree = _Tree(conversation)
    # Node id to the message that the node became or was put on, or else the last one before it.
    message_of: dict[str, MessageDraft | None] = {}
    root = _Branch(tally, is_root=True)
    root.describe(conversation)
    for place, (after, path) in enumerate(tree.paths()):
        branch, start = _Branch(tally, is_root=False) if place else root, message_of.get(after)
        for node_id in path:
            branch.take(node_id, tree.nodes[node_id])
            message_of[node_id] = branch.last or start
        if branch is not root:
            root.join(branch, start)
    chosen = message_of.get(tree.current)
    root.chosen = "" if chosen is None or root.is_line else chosen.external_id
    if not root.is_line:
        tally.note(BRANCHES)
    tally.note(ADRIFT, tree.adrift)
    return [root]


class _Tree:
    def __init__(self, conversation: dict[str, Any]) -> None:
        self.nodes: dict[str, Any] = mapping_in(conversation, "mapping")
        self.adrift = 0
        self._current = text_in(conversation, "current_node")
        self._children: defaultdict[str, list[str]] = defaultdict(list)
        for node_id, node in self.nodes.items():
            self._children[text_in(node, "parent")].append(node_id)
        for node_id, children in self._children.items():
            named = [child for child in list_in(self.nodes.get(node_id), "children") if isinstance(child, str)]
            order = {child: place for place, child in enumerate(named)}
            children.sort(key=lambda child: order.get(child, len(named)))
        self._placed: set[str] = set()

    @property
    def current(self) -> str:
        """The node that the conversation ends with, or else the newest leaf."""
        if self._current in self.nodes:
            return self._current
        leaves = [each for each in self.nodes if not self._children.get(each)] or list(self.nodes)
        times = {each: time_of(mapping_in(self.nodes[each], "message").get("create_time")) for each in leaves}
        return max(leaves, key=lambda each: times[each] or _EPOCH, default="")

    def paths(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each node once: every path down, of first children, with the node after which it leaves an earlier one."""
        roots = dict.fromkeys(self._children.get("", ()))
        gone = [node_id for node_id, node in self.nodes.items() if text_in(node, "parent") not in self.nodes]
        # What is left then hangs in a circle.
        for node_id in (*roots, *gone, *self.nodes):
            if node_id not in self._placed:
                self.adrift += node_id not in roots
                path = self._path_down(node_id)
                yield "", path
                yield from self._forks(path)

    def _forks(self, path: list[str]) -> Iterator[tuple[str, list[str]]]:
        walked = list(path)
        for node_id in walked:
            for child in self._children.get(node_id, ()):
                if child not in self._placed:
                    fork = self._path_down(child)
                    walked.extend(fork)
                    yield node_id, fork

    def _path_down(self, node_id: str) -> list[str]:
        path = []
        current: str | None = node_id
        while current is not None:
            self._placed.add(current)
            path.append(current)
            current = next((child for child in self._children.get(current, ()) if child not in self._placed), None)
        return path


class _Branch(TranscriptDraft):
    def __init__(self, tally: Tally, *, is_root: bool) -> None:
        super().__init__(tally)
        self.is_root = is_root

    def describe(self, conversation: dict[str, Any]) -> None:
        self.external_id = identifier(
            text_in(conversation, "conversation_id") or text_in(conversation, "id") or "conversation"
        )
        self.title = one_line(text_in(conversation, "title"), 200)
        self.model = one_line(text_in(conversation, "default_model_slug"), 100)
        self.saw(time_of(conversation.get("create_time")))
        self.keep("conversation", {key: value for key, value in conversation.items() if key != "mapping"})

    def take(self, node_id: str, node: Any) -> None:
        message = mapping_in(node, "message")
        role = text_in(mapping_in(message, "author"), "role")
        self.saw(time_of(message.get("create_time")))
        content_type = text_in(message.get("content"), "content_type")
        if not message:
            self.tally.read("node")
            if not isinstance(node, dict) or node.get("message") or node.keys() - _PLACE_FIELDS:
                self.keep("node", node)
            else:
                self.tally.skip("node", gettext_noop("it holds no message, only its place in the tree"))
        elif content_type in _CONTEXT_TYPES:
            self._data(node, content_type)
        elif role == "tool":
            self._result(message, node)
        elif role == "system" and self.last is None and self.is_root and not self.system_prompt:
            parts, rest = parts_of(message.get("content"))
            self.system_prompt = _text_of(parts)
            self.tally.read("system")
            for part in (part for part in parts if isinstance(part, DataPart)):
                self.attach(part)
            self.keep("records", [_without_content(node, rest)])
        elif role in _ROLES and (role != "system" or _text_of(parts_of(message.get("content"))[0])):
            self._message(node_id, message, node, _ROLES[role])
        else:
            self._data(node, role or "message")

    def _data(self, node: Any, kind: str) -> None:
        self.tally.read(kind)
        self.keep(kind, node)

    def _message(self, node_id: str, message: dict[str, Any], node: Any, role: Role) -> None:
        self.tally.read(role)
        metadata = mapping_in(message, "metadata")
        draft = MessageDraft(
            external_id=identifier(node_id),
            role=role,
            created_at=time_of(message.get("create_time")),
            model=one_line(text_in(metadata, "model_slug"), 100) if role == "assistant" else "",
            finish_reason=one_line(text_in(mapping_in(metadata, "finish_details"), "type"), 64),
        )
        self.add(draft, starts_turn=role == "user")
        self.model = draft.model or self.model
        parts, rest = parts_of(message.get("content"))
        recipient = text_in(message, "recipient")
        if role == "assistant" and recipient not in _EVERYBODY:
            draft.parts.extend(part for part in parts if not isinstance(part, TextPart))
            part = ToolPart(
                tool_name=one_line(recipient, 200) or "unknown",
                tool_call_id=identifier(node_id),
                input=_text_of(parts) or "{}",
                started_at=draft.created_at,
            )
            self.call(draft, part, node_id)
        else:
            draft.parts.extend([*parts, *_attached(metadata, parts), *_citations(metadata)])
        draft.records.append(_without_content(node, rest))

    def _result(self, message: dict[str, Any], node: Any) -> None:
        name, parent = text_in(mapping_in(message, "author"), "name"), text_in(node, "parent")
        content, at = message.get("content"), time_of(message.get("create_time"))
        parts, rest = parts_of(content)
        failed = text_in(content, "content_type") == "system_error"
        place = None
        for call_id in (parent, self.open_call(one_line(name, 200))):
            place = place or self.answer(call_id, _text_of(parts), failed=failed, at=at)
        if place is None:
            self.tally.note(gettext_noop("tool results without a call are kept as data"))
            self._data(node, "tool")
            return
        self.tally.read("tool")
        call_id = place.part.tool_call_id
        place.message.parts.extend(
            replace(part, tool_call_id=call_id) if isinstance(part, MediaPart) else part
            for part in parts
            if not isinstance(part, TextPart)
        )
        place.message.records.append(_without_content(node, rest))


def parts_of(content: Any) -> tuple[list[Part], Any]:
    """Return a message's content as parts, and what of it the parts do not hold."""
    kind = text_in(content, "content_type")
    if not isinstance(content, dict) or not kind:
        return ([] if content is None else [data_part(FORMAT, "content", content)]), None
    if isinstance(content.get("parts"), list):
        pieces = [piece for part in content["parts"] for piece in _parts_of_piece(part)]
        return pieces, {**content, "parts": len(content["parts"])}
    if kind == "thoughts" and all(isinstance(thought, dict) for thought in list_in(content, "thoughts")):
        thoughts = list_in(content, "thoughts")
        rests = [{key: value for key, value in each.items() if key not in _THOUGHT_FIELDS} for each in thoughts]
        return [
            ReasoningPart(text="\n".join(text for text in (text_in(each, field) for field in _THOUGHT_FIELDS) if text))
            for each in thoughts
        ], {**content, "thoughts": rests}
    for field in ("text", "result"):
        if isinstance(content.get(field), str):
            return [TextPart(text=content[field])], {key: value for key, value in content.items() if key != field}
    return [data_part(FORMAT, kind, content)], {"content_type": kind}


def _parts_of_piece(piece: Any) -> list[Part]:
    if isinstance(piece, str):
        return [TextPart(text=piece)] if piece else []
    content_type = text_in(piece, "content_type")
    data = data_part(FORMAT, content_type or "part", piece)
    spoken = text_in(piece, "text") if content_type == "audio_transcription" else ""
    if spoken:
        return [TextPart(text=spoken), data]
    # What a person said in a talk: the sound has a place of its own beside the frames of the picture.
    shown = mapping_in(piece, "audio_asset_pointer") or piece
    pointer, size = text_in(shown, "asset_pointer"), count_in(shown, "size_bytes")
    if not pointer:
        return [data]
    if content_type == "image_asset_pointer":
        width, height = count_in(shown, "width"), count_in(shown, "height")
        return [ImagePart(source=pointer, size=size, width=width, height=height), *_unless_placed(piece, data)]
    if "audio" in content_type:
        sound = text_in(shown, "format")
        media_type = f"audio/{sound}" if sound else ""
        return [AudioPart(source=pointer, size=size, media_type=media_type), *_unless_placed(piece, data)]
    return [data]


def _unless_placed(piece: dict[str, Any], data: DataPart) -> list[DataPart]:
    return [] if all(key in _POINTER_FIELDS or value in (None, {}, []) for key, value in piece.items()) else [data]


def _attached(metadata: dict[str, Any], parts: Sequence[Part]) -> Iterator[Part]:
    """Yield the files that were given with a message, unless they are among its parts."""
    shown = [part.source for part in parts if isinstance(part, MediaPart)]
    for given in list_in(metadata, "attachments"):
        file_id, media_type = text_in(given, "id"), text_in(given, "mime_type") or text_in(given, "mimeType")
        if file_id and not any(source.endswith(file_id) for source in shown):
            name, size = one_line(text_in(given, "name"), 200), count_in(given, "size")
            yield kind_of_media(media_type)(source=file_id, media_type=media_type, name=name, size=size)


def _citations(metadata: dict[str, Any]) -> list[CitationPart]:
    """Return the sources of a message, each once; what else is said of them stays in its record."""
    found = [
        (mapping_in(cited, "metadata"), count_in(cited, "start_ix"), count_in(cited, "end_ix"))
        for cited in list_in(metadata, "citations")
    ]
    for reference in list_in(metadata, "content_references"):
        for source in list_in(reference, "items") or [reference]:
            found.append((source, count_in(reference, "start_idx"), count_in(reference, "end_idx")))
    citations = [
        CitationPart(
            text=text_in(source, "text") or text_in(source, "snippet"),
            title=one_line(text_in(source, "title") or text_in(source, "name"), 200),
            url=text_in(source, "url"),
            start=start,
            end=end,
        )
        for source, start, end in found
    ]
    by_place: dict[tuple[str, str, int, int], CitationPart] = {}
    for cited in citations:
        if cited.title or cited.url:
            by_place.setdefault((cited.title, cited.url, cited.start, cited.end), cited)
    return list(by_place.values())


def _text_of(parts: list[Part]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def _without_content(node: Any, rest: Any) -> dict[str, Any]:
    return {**node, "message": {**mapping_in(node, "message"), "content": rest}}
