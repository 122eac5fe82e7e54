"""OpenAI Chat Completions messages, in the shapes people keep them in.

One JSON object with ``messages``; a JSON list of messages or of such objects; or JSON Lines with one conversation
or one message per line. The older ``function_call`` and the role ``function`` are read as tool calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from mnesis_core.errors import gettext_noop
from mnesis_core.llm.interface import Source as Origin
from mnesis_core.llm.interface import Usage
from mnesis_core.messages import (
    AudioPart,
    CitationPart,
    DataPart,
    DocumentPart,
    ImagePart,
    ProviderPart,
    ReasoningPart,
    RefusalPart,
    Role,
    TextPart,
    ToolPart,
)
from mnesis_core.transcripts.building import (
    MessageDraft,
    Tally,
    TranscriptDraft,
    data_part,
    make_ids_unique,
    nothing_readable,
    plain_kind,
    readable_lines,
    refuse_companions,
    unreadable_part,
)
from mnesis_core.transcripts.reading import (
    ByteCount,
    Element,
    Media,
    count_in,
    dump_json,
    identifier,
    list_in,
    mapping_in,
    one_line,
    read_document,
    read_elements,
    read_media,
    text_in,
    time_of,
)
from mnesis_core.transcripts.values import NamedSource, ParseResult, Progress, Source

FORMAT = "openai_chat"
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_RESULT_ROLES = ("tool", "function")
_REASONING_FIELDS = ("reasoning_content", "reasoning")
# Fields whose blocks go back to a provider as they came, as litellm and OpenRouter have them.
_OPAQUE_FIELDS = {"thinking_blocks": "anthropic", "reasoning_details": "openrouter"}
_CITATIONS = ("url_citation", "file_citation", "container_file_citation")
_TIME_FIELDS = ("created_at", "create_time", "created", "timestamp")
_ID_FIELDS = ("id", "conversation_id", "session_id")


def parse(
    source: Source, *, name: str = "", companions: Sequence[NamedSource] = (), progress: Progress | None = None
) -> ParseResult:
    """A conversation without an id gets one derived from its content, so that reading the file again gives the same id.

    :raises InvalidRequest: it holds no message
    """
    tally = Tally(FORMAT)
    refuse_companions(tally, companions)
    written = (line for line in readable_lines(source, tally, ByteCount(progress)) if line.strip())
    first, second = next(written, ""), next(written, "")
    elements: Iterable[Element]
    if second and isinstance(read_document(first).value, dict | list):
        elements = map(read_document, chain([first, second], written))
    else:
        text = "\n".join(chain([first, second], written))
        elements = listed = list(read_elements(text))
        if len(listed) == 1 and listed[0].reason and second:
            # No document after all: a line-by-line file whose first line is broken.
            elements = map(read_document, text.split("\n"))
    drafts = _conversations(elements, tally)
    if not drafts:
        raise nothing_readable(tally, name, "no object with a 'role' or with 'messages' is in it")
    make_ids_unique(drafts)
    return ParseResult(transcripts=tuple(draft.build() for draft in drafts), report=tally.report())


def _conversations(elements: Iterable[Element], tally: Tally) -> list[_Conversation]:
    drafts: list[_Conversation] = []
    unplaced: list[DataPart] = []
    is_open = False  # Messages without a conversation around them go on with the one before.
    for element in elements:
        value = element.value
        is_conversation = isinstance(value, dict) and isinstance(value.get("messages"), list)
        is_message = not is_conversation and isinstance(value, dict) and isinstance(value.get("role"), str)
        if is_message and not is_open:
            drafts.append(_Conversation(tally))
        if is_message:
            drafts[-1].take(value)
            is_open = True
        elif is_conversation or (isinstance(value, list) and any(isinstance(x, dict) and "role" in x for x in value)):
            tally.read("conversation")
            is_open = False
            drafts.append(_Conversation(tally))
            drafts[-1].name(value if is_conversation else {})
            for message in value["messages"] if is_conversation else value:
                drafts[-1].take(message)
        else:
            unplaced.append(unreadable_part(tally, element, "it has neither role nor messages"))
        while drafts and unplaced:
            drafts[-1].attach(unplaced.pop(0))
    for draft in drafts:
        draft.external_id = draft.external_id or f"sha256:{draft.digest.hexdigest()}"
    return drafts


class _Conversation(TranscriptDraft):
    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self.digest = hashlib.sha256()
        self._is_first = True

    def name(self, about: dict[str, Any]) -> None:
        self.external_id = identifier(next((text_in(about, key) for key in _ID_FIELDS if text_in(about, key)), ""))
        self.title = one_line(text_in(about, "title"), 200)
        self.model = one_line(text_in(about, "model"), 100)
        self.saw(_time_in(about))
        rest = {key: value for key, value in about.items() if key != "messages"}
        if rest:
            self.keep("conversation", rest)

    def take(self, message: Any) -> None:
        self.digest.update(dump_json(message).encode("utf-8", "surrogatepass"))
        role = text_in(message, "role")
        self.tally.read(role if role in _ROLES or role in _RESULT_ROLES else "unknown")
        self.saw(_time_in(message))
        if role in _RESULT_ROLES:
            self._result(message, role)
        elif role in ("system", "developer") and self._is_first and isinstance(message.get("content"), str):
            self.system_prompt = message["content"]
            self._keep_rest(message, {"content", "role"} if role == "system" else {"content"})
        elif role in _ROLES:
            self._message(message, _ROLES[role])
        else:
            self.tally.note(gettext_noop("messages of an unknown role are kept as data"))
            self.keep(role or "message", message)
        self._is_first = False

    def _message(self, message: dict[str, Any], role: Role) -> None:
        said = mapping_in(message, "usage")
        usage = Usage(
            input_tokens=count_in(said, "prompt_tokens") or count_in(said, "input_tokens"),
            output_tokens=count_in(said, "completion_tokens") or count_in(said, "output_tokens"),
            cache_read_tokens=count_in(mapping_in(said, "prompt_tokens_details"), "cached_tokens"),
            source=Origin.IMPORTED,
        )
        draft = MessageDraft(
            external_id=identifier(text_in(message, "id")),
            role=role,
            created_at=_time_in(message),
            model=one_line(text_in(message, "model"), 100),
            usage=usage if isinstance(message.get("usage"), dict) else None,
            finish_reason=one_line(text_in(message, "finish_reason"), 64),
        )
        self.add(draft, starts_turn=role == "user")
        self.model = draft.model or self.model
        placed = {"role"} if message.get("role") == role else set()
        placed.update(field for field in ("id",) if message.get(field) == draft.external_id)
        fields = [field for field in _REASONING_FIELDS if isinstance(message.get(field), str) and message[field]]
        draft.parts.extend(ReasoningPart(text=message[field]) for field in fields)
        placed.update(fields)
        placed.update(self._opaque(draft, message))
        placed.update(self._content(draft, message.get("content")))
        placed.update(self._beside_content(draft, message))
        for call in list_in(message, "tool_calls"):
            self._call(draft, call)
        if isinstance(message.get("function_call"), dict):
            self._add_call(draft, "", message["function_call"], "arguments")
            placed.add("function_call")
        if isinstance(message.get("tool_calls"), list):
            placed.add("tool_calls")
        self._keep_rest(message, placed)

    def _content(self, draft: MessageDraft, content: Any) -> list[str]:
        if content is not None and not isinstance(content, str | list):
            return []
        for part in content if isinstance(content, list) else [content] if content else []:
            if isinstance(part, str):
                draft.parts.append(TextPart(text=part))
                continue
            kind, rest = text_in(part, "type"), part
            is_text = kind in ("text", "input_text", "output_text") and isinstance(part.get("text"), str)
            if is_text:
                draft.parts.append(TextPart(text=part["text"]))
                rest = {key: value for key, value in part.items() if key != "text"}
            elif kind == "refusal" and isinstance(part.get("refusal"), str):
                draft.parts.append(RefusalPart(text=part["refusal"]))
                rest = {key: value for key, value in part.items() if key != "refusal"}
            elif (media := _media_of(part)) is not None:
                draft.show(media)
                rest = _rest_of_media(part)
            if rest is part or len(rest) > 1:
                draft.parts.append(data_part(FORMAT, kind or "content", rest))
        return ["content"]

    def _opaque(self, draft: MessageDraft, message: dict[str, Any]) -> Iterator[str]:
        """Keep what has to go back as it came, and yield the fields that hold it."""
        for field, provider in _OPAQUE_FIELDS.items():
            blocks = list_in(message, field)
            if blocks and all(text_in(block, "type") for block in blocks):
                kinds = (plain_kind(text_in(block, "type")).lower() for block in blocks)
                made = zip(kinds, map(dump_json, blocks), strict=True)
                draft.parts += [ProviderPart(provider=provider, kind=kind, data=data) for kind, data in made]
                yield field

    def _beside_content(self, draft: MessageDraft, message: dict[str, Any]) -> Iterator[str]:
        """Make parts of what stands beside a message's content, and yield the fields that it is in."""
        if isinstance(message.get("refusal"), str) and message["refusal"]:
            draft.parts.append(RefusalPart(text=message["refusal"]))
            yield "refusal"
        spoken = mapping_in(message, "audio")
        media = read_media(AudioPart, encoded=text_in(spoken, "data"), caption=text_in(spoken, "transcript"))
        if media is not None:
            draft.show(media)
            rest = {key: value for key, value in spoken.items() if key not in ("data", "transcript")}
            draft.parts += [data_part(FORMAT, "audio", rest)] if rest else []
            yield "audio"
        sources = list_in(message, "annotations")
        if sources and all(text_in(source, "type") in _CITATIONS for source in sources):
            draft.parts += map(_citation, sources)
            yield "annotations"

    def _call(self, draft: MessageDraft, call: Any) -> None:
        # Besides functions there are custom tools, whose input is plain text.
        kind = "custom" if mapping_in(call, "custom") else "function"
        called = mapping_in(call, kind)
        if not called:
            draft.parts.append(data_part(FORMAT, "tool_call", call))
            return
        field = "input" if kind == "custom" else "arguments"
        self._add_call(draft, text_in(call, "id"), called, field)
        rest = {key: value for key, value in call.items() if key not in ("id", "type", "function", "custom", "index")}
        rest.update((key, value) for key, value in called.items() if key not in ("name", field))
        if rest:
            draft.parts.append(data_part(FORMAT, "tool_call", {"tool_call_id": text_in(call, "id"), **rest}))

    def _add_call(self, draft: MessageDraft, call_id: str, called: dict[str, Any], field: str) -> None:
        given = called.get(field, "{}")
        call_id = call_id or f"call_{len(self.callers) + 1}"
        part = ToolPart(
            tool_name=one_line(text_in(called, "name"), 200) or "unknown",
            tool_call_id=identifier(call_id),
            input=given if isinstance(given, str) else dump_json(given),
            started_at=draft.created_at,
        )
        self.call(draft, part, call_id)

    def _result(self, message: dict[str, Any], role: str) -> None:
        # A function's result has no id, only the function's name.
        call_id = text_in(message, "tool_call_id") or self.open_call(one_line(text_in(message, "name"), 200))
        output, others = _output_of(message.get("content"))
        place = self.answer(call_id, output, at=_time_in(message))
        if place is None:
            self.tally.note(gettext_noop("tool results without a call are kept as data"))
            self.keep(role, message)
            return
        for other in others:
            if (media := _media_of(other, tool_call_id=place.part.tool_call_id)) is not None:
                place.message.show(media)
                if len(other := _rest_of_media(other)) < 2:
                    continue
            place.message.parts.append(
                data_part(FORMAT, text_in(other, "type") or "content", {"tool_call_id": call_id, "content": other})
            )
        if len(list_in(message, "content")) - len(others) > 1:
            self.tally.note(gettext_noop("tool results of several texts are joined by line breaks"))
        rest = {key: value for key, value in message.items() if key not in ("role", "content", "tool_call_id")}
        if rest.get("name") == place.part.tool_name:
            del rest["name"]
        if rest:
            place.message.parts.append(data_part(FORMAT, "message", {"tool_call_id": call_id, **rest}))

    def _keep_rest(self, message: dict[str, Any], placed: set[str]) -> None:
        rest = {key: value for key, value in message.items() if key not in placed}
        # APIs write every field they know; one that is null or empty says nothing.
        said = {key: value for key, value in rest.items() if value not in (None, [], {})}
        self.tally.note(gettext_noop("fields that are null or empty are not stored"), len(rest) - len(said))
        if said:
            self.keep("message", said)


def _media_of(part: Any, **known: Any) -> Media | None:
    # Chat Completions have objects where Responses have texts.
    kind, image = text_in(part, "type"), mapping_in(part, "image_url")
    sound, file = mapping_in(part, "input_audio"), mapping_in(part, "file") or part
    if kind in ("image_url", "input_image"):
        address = text_in(image, "url") or text_in(part, "image_url") or text_in(part, "file_id")
        return read_media(ImagePart, address=address, **known)
    if kind == "input_audio":
        media_type = f"audio/{text_in(sound, 'format') or 'unknown'}"
        return read_media(AudioPart, encoded=text_in(sound, "data"), media_type=media_type, **known)
    if kind in ("file", "input_file"):
        held = text_in(file, "file_data")
        encoded, address = ("", held) if held.startswith("data:") else (held, "")
        address = address or text_in(file, "file_url") or text_in(file, "file_id")
        name = one_line(text_in(file, "filename"), 200)
        return read_media(DocumentPart, encoded=encoded, address=address, name=name, **known)
    return None


def _rest_of_media(part: dict[str, Any]) -> dict[str, Any]:
    """Return what a part of a content holds beside what ``_media_of`` reads."""
    placed = ("url", "data", "format", "file_data", "file_url", "file_id", "filename")
    rest = {}
    for key, value in part.items():
        inner = {name: item for name, item in value.items() if name not in placed} if isinstance(value, dict) else value
        if key not in (*placed, "image_url", "input_audio", "file") or (isinstance(value, dict) and inner):
            rest[key] = inner
    return rest


def _citation(source: Any) -> CitationPart:
    said = mapping_in(source, text_in(source, "type")) or source
    return CitationPart(
        title=text_in(said, "title") or text_in(said, "filename") or text_in(said, "file_id"),
        url=text_in(said, "url"),
        start=count_in(said, "start_index"),
        end=count_in(said, "end_index"),
        provider="openai",
        data=dump_json(source),
    )


def _output_of(content: Any) -> tuple[str, list[Any]]:
    if isinstance(content, str):
        return content, []
    if not isinstance(content, list):
        return ("" if content is None else dump_json(content)), []
    texts = [part if isinstance(part, str) else part["text"] for part in content if _is_text(part)]
    return "\n".join(texts), [part for part in content if not _is_text(part)]


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or (text_in(part, "type") == "text" and isinstance(part.get("text"), str))


def _time_in(record: Any) -> Any:
    values = (record.get(field) for field in _TIME_FIELDS) if isinstance(record, dict) else ()
    return next((time for time in map(time_of, values) if time), None)
