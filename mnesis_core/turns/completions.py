"""OpenAI's Chat Completions: what a request says, and how an answer reads, whole, as chunks of a stream, or as an error.

A parameter is refused if ignoring it would give another kind of answer than the client asked for. A parameter that only
flavours an answer is left unused, and the answer's headers name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mnesis_core.errors import InvalidRequest, MnesisError
from mnesis_core.files.pictures import SentPicture, read_audio, read_picture
from mnesis_core.llm.interface import ToolCall
from mnesis_core.llm.parameters import NAMES, Parameters, read_parameters
from mnesis_core.messages import CitationPart, ReasoningPart
from mnesis_core.records import UsageRecord
from mnesis_core.text import printable
from mnesis_core.turns.requests import Answered, Head, Thought, is_off, joined, unused_names, web_address

# Our names of the parameters that are read, and OpenAI's.
PARAMETERS = {
    **{name: name for name in NAMES if name not in ("effort", "max_output_tokens", "provider_tools")},
    "provider_tools": "web_search_options",
    "effort": "reasoning_effort",
    "max_output_tokens": "max_completion_tokens",
}
USED = {"model", "messages", "stream", "stream_options", "tools", "metadata", "user", "n", "max_tokens"} | {
    *PARAMETERS.values()
}
# The model's visible thinking, which OpenAI has no field for: that of DeepSeek, vLLM and litellm.
REASONING = "reasoning_content"
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


# For each parameter, the accepted values, and the hint for any other.
_ACCEPTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "n": (lambda value: value in (None, 1), "one answer is made; send n=1"),
    "logprobs": (is_off, "probabilities of tokens are not known here"),
    "top_logprobs": (lambda value: value in (None, 0), "probabilities of tokens are not known here"),
    "modalities": (lambda value: value in (None, ["text"]), "answers are text"),
    "audio": (is_off, "answers are text"),
    "logit_bias": (is_off, "the choice of tokens cannot be changed"),
    "functions": (is_off, "send tools"),
    "function_call": (is_off, "send tools and tool_choice"),
    "web_search_options": (lambda value: value is None or isinstance(value, Mapping), "send an object"),
}


def check_supported(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that ask for a kind of answer that is not supported.

    :raises InvalidRequest: names the parameter
    """
    for name, (is_accepted, hint) in _ACCEPTED.items():
        if not is_accepted(parameters.get(name)):
            raise InvalidRequest(f"{name} is not supported with this value: {hint}", field=name)


def read_asked(parameters: Mapping[str, Any]) -> Parameters:
    """Return what a request asks of the model, from its parameters by OpenAI's names.

    :raises InvalidRequest: one is out of its bounds; names it
    """
    given = {name: parameters.get(said) for name, said in PARAMETERS.items()}
    if given["provider_tools"] is not None:
        given["provider_tools"] = ["web_search"]
    if given["max_output_tokens"] is None:
        given["max_output_tokens"] = parameters.get("max_tokens")
    return read_parameters(given, path="", called=PARAMETERS)


def unused(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parameters that were sent, are not refused and have no effect, sorted by name; at most 20."""
    return unused_names(parameters, USED | {*_ACCEPTED})


def read_content(
    content: str | Sequence[Mapping[str, Any]] | None, *, field: str, may_show: bool = False
) -> tuple[str, tuple[SentPicture, ...]]:
    """Return the text of a message's content, its parts divided by line breaks, and its pictures.

    :param may_show: whether the content may have pictures, as a user's and a tool's may
    :raises InvalidRequest: a part is of another type, or its picture cannot be read; names it
    """
    if content is None or isinstance(content, str):
        return content or "", ()
    texts: list[str] = []
    pictures: list[SentPicture] = []
    for index, part in enumerate(content):
        kind, place = part.get("type"), f"{field}.{index}"
        text = part.get("refusal" if kind == "refusal" else "text")
        if kind == "image_url" and may_show:
            image = part.get("image_url")
            url = image.get("url") if isinstance(image, Mapping) else image
            pictures.append(read_picture(url, place=f"{place}.image_url"))
        elif kind == "file" and may_show:
            file = part.get("file")
            data = file.get("file_data") if isinstance(file, Mapping) else None
            pictures.append(read_picture(data, place=f"{place}.file.file_data", is_document=True))
        elif kind == "input_audio" and may_show:
            pictures.append(read_audio(part.get("input_audio"), place=f"{place}.input_audio"))
        elif kind in ("text", "refusal") and isinstance(text, str):
            texts.append(text)
        else:
            known = "text, image_url, file and input_audio parts" if may_show else "text parts"
            raise InvalidRequest(f"{place} is of another type; {known} are taken here", field=f"{place}.type")
    return "\n".join(texts), tuple(pictures)


def read_completion(answered: Answered) -> dict[str, Any]:
    refusal = printable(answered.refusal) or None
    message: dict[str, Any] = {"role": "assistant", "content": printable(answered.text), "refusal": refusal}
    if thought := joined(part.text for part in answered.parts if isinstance(part, ReasoningPart)):
        message[REASONING] = printable(thought)
    if answered.citations:
        message["annotations"] = [*_annotations(answered)]
    if answered.pictures:
        message["images"] = _images(answered)
    if answered.tool_calls or refusal:
        message["content"] = message["content"] or None
    if answered.tool_calls:
        message["tool_calls"] = [_call(call) for call in answered.tool_calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answered.finish_reason}
    return {
        **_begin(answered.head, "chat.completion"),
        "choices": [choice],
        "usage": _usage(answered.usage),
        "mnesis": answered.ours(),
    }


def read_piece(head: Head, piece: str | Thought, *, is_first: bool) -> dict[str, Any]:
    role = {"role": "assistant"} if is_first else {}
    said = {"content": piece} if isinstance(piece, str) else {REASONING: piece.text}
    return _chunk(head, role | {name: printable(text) for name, text in said.items()})


def read_end(answered: Answered, *, include_usage: bool, is_first: bool) -> Iterator[dict[str, Any]]:
    role: dict[str, Any] = {"role": "assistant", "content": None} if is_first else {}
    if answered.refusal:
        yield _chunk(answered.head, role | {"refusal": printable(answered.refusal)})
        role = {}
    if answered.citations:
        yield _chunk(answered.head, role | {"annotations": [*_annotations(answered)]})
        role = {}
    if answered.pictures:
        yield _chunk(answered.head, role | {"images": _images(answered)})
        role = {}
    if answered.tool_calls:
        calls = [{"index": index, **_call(call)} for index, call in enumerate(answered.tool_calls)]
        yield _chunk(answered.head, role | {"tool_calls": calls})
        role = {}
    yield _chunk(answered.head, role, finish=answered.finish_reason) | {"mnesis": answered.ours()}
    if include_usage:
        yield {**_begin(answered.head, "chat.completion.chunk"), "choices": [], "usage": _usage(answered.usage)}


def _images(answered: Answered) -> list[dict[str, Any]]:
    """Return pictures that the model made where OpenRouter's and litellm's clients look for them: OpenAI has no field."""
    return [
        {"type": "image_url", "index": index, "image_url": {"url": picture.url}}
        for index, picture in enumerate(answered.pictures)
    ]


def _annotations(answered: Answered) -> Iterator[dict[str, Any]]:
    return ({"type": "url_citation", "url_citation": cited} for cited in url_citations(answered.citations))


def url_citations(sources: Sequence[CitationPart]) -> Iterator[dict[str, Any]]:
    """Yield the sources on the web as OpenAI's APIs have them."""
    for source in sources:
        if address := web_address(source.url):
            place = {"start_index": source.start, "end_index": source.end}
            yield {**place, "title": printable(source.title), "url": printable(address)}


def read_error(error: MnesisError) -> dict[str, Any]:
    invalid = error.details.get("errors") or [{}]  # of a request that its schema refused
    return {
        "error": {
            "message": printable(error.message),
            "type": _TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error"),
            "code": error.code,
            "param": error.details.get("field") or invalid[0].get("field"),
            "details": error.details,
        }
    }


def _begin(head: Head, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{head.turn_id}", "object": kind, "created": head.created, "model": head.model}


def _chunk(head: Head, delta: dict[str, Any], *, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**_begin(head, "chat.completion.chunk"), "choices": [choice]}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": printable(call.name), "arguments": printable(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _usage(usage: UsageRecord) -> dict[str, Any]:
    asked, said = usage.tokens_input or 0, usage.tokens_output or 0
    return {
        "prompt_tokens": asked,
        "completion_tokens": said,
        "total_tokens": asked + said,
        "prompt_tokens_details": {"cached_tokens": usage.tokens_cache_read or 0},
    }
