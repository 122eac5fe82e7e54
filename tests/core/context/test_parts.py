"""What models say and take beyond text: how it counts, reads in a prompt, goes back to its provider, and is summarised."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.compaction.transcript import message_quotables, transcript_pieces
from mnesis_core.context.assembly import assemble, rebuild
from mnesis_core.context.entries import Assembled, read_manifest
from mnesis_core.context.replay import BlockKind, blocks_of
from mnesis_core.context.wording import SENT_TYPES, fields_of
from mnesis_core.files.references import file_ids_of
from mnesis_core.llm.interface import Request
from mnesis_core.llm.tokens import MEDIA_TOKENS, estimate_part, estimate_text
from mnesis_core.messages import (
    KNOWN_PARTS,
    AudioPart,
    CitationPart,
    DocumentPart,
    ImagePart,
    Part,
    ProviderPart,
    ProviderToolPart,
    ReasoningPart,
    RefusalPart,
    StoredMessage,
    UnknownPart,
    text_of,
)
from mnesis_core.providers.rendering import SIGNATURE, render
from tests.core.context import contexts as make
from tests.support.material.parts import any_part, part_types

THINKING = {"type": "thinking", "thinking": "Add them.", "signature": "c2ln"}
IMAGE = ImagePart(file_id="file_7", media_type="image/png", size=120, name="quay.png", caption="The quay at noon")
SEARCH = ProviderToolPart(
    provider="anthropic", tool_name="web_search", tool_call_id="srv_1", input='{"query": "tide"}', output="[]"
)
UNKNOWN = UnknownPart(type="hologram", data='{"beam": "file_9"}')


def opaque(value: Any = THINKING, *, provider: str = "anthropic", kind: str = "thinking") -> ProviderPart:
    return ProviderPart(provider=provider, kind=kind, data=value if isinstance(value, str) else json.dumps(value))


def prompt(messages: list[StoredMessage], *, provider: str = "", usable: int = 10_000) -> Assembled:
    entries = make.entries_of(messages)
    return assemble(entries, system_prompt="", tools=[], budget=make.budget(usable), provider=provider)


def answered(*parts: Part | str, format: str, provider: str) -> list[Any]:
    """What a provider is sent after the user's message, for an answer with these parts."""
    payload = render(prompt(make.turn(1, "How high?", *parts), provider=provider), provider=format)
    items: list[Any] = next(payload[name] for name in ("messages", "input", "contents") if name in payload)
    return items[1:]


def test_the_types_are_all_told_apart_and_fit_their_column() -> None:
    assert part_types() == set(get_args(Part))
    assert set(KNOWN_PARTS.values()) == part_types() - {UnknownPart}
    assert all(len(name) <= 16 for name in KNOWN_PARTS)


@given(any_part())
def test_every_part_has_a_size_and_only_what_is_sent_has_texts(part: Part) -> None:
    assert estimate_part(part) >= 0
    fields = fields_of(part, tombstoned=False)
    assert part.type in SENT_TYPES or not fields


def test_a_picture_counts_as_the_block_that_stands_for_it() -> None:
    for part in (IMAGE, AudioPart(), DocumentPart(name="x" * 400, source="https://a.example/b", size=2**40)):
        block = estimate_text(fields_of(part, tombstoned=False)["text"])
        assert block <= estimate_part(part) <= block + MEDIA_TOKENS


def test_media_are_sent_as_blocks_that_name_their_file() -> None:
    # These words are in past payloads: another wording needs a mark in the manifest's row.
    assert fields_of(IMAGE, tombstoned=False)["text"] == (
        "[IMAGE: quay.png]\nFile ID: file_7\nType: image/png\nSize: 120 bytes\nCaption: The quay at noon\n[/IMAGE]"
    )
    linked = DocumentPart(source="https://a.example/b.pdf")
    assert fields_of(linked, tombstoned=False)["text"] == (
        "[DOCUMENT: without a name]\nSource: https://a.example/b.pdf\n[/DOCUMENT]"
    )
    assert fields_of(SEARCH, tombstoned=False)["text"] == (
        '[TOOL web_search, run by anthropic]\nInput: {"query": "tide"}\nOutput: []\n[/TOOL]'
    )
    assert fields_of(RefusalPart(text="I will not."), tombstoned=False) == {"text": "I will not."}
    assert text_of((RefusalPart(text="I will not."), IMAGE)) == "I will not."


def test_what_a_provider_ran_is_no_call_of_ours() -> None:
    assembled = prompt(make.turn(1, "How high?", "I look.", SEARCH, "High."))
    assert all(not message.tool_calls for message in assembled.messages)
    assert "run by anthropic" in assembled.messages[1].text
    assert assembled.breakdown.tool_outputs > 0


def test_the_picture_of_a_tools_result_stands_in_the_result() -> None:
    shown = ImagePart(file_id="file_8", name="map.png", tool_call_id="call_1")
    assembled = prompt(make.turn(1, "Where?", make.tool(output="found"), shown, "There."))
    [result] = assembled.messages[1].tool_results
    assert result.text == "found\n[IMAGE: map.png]\nFile ID: file_8\n[/IMAGE]"
    assert assembled.messages[2].text == "There."
    # Without a result it is told by itself.
    loose = prompt(make.turn(1, "Where?", make.tool(output=None), shown))
    assert [message.text for message in loose.messages] == ["Where?", "", "[IMAGE: map.png]\nFile ID: file_8\n[/IMAGE]"]


def test_thinking_goes_back_to_anthropic_before_what_it_belongs_to() -> None:
    redacted = {"type": "redacted_thinking", "data": "ZZZ"}
    parts = (
        ReasoningPart(text="Add them."),
        opaque(),
        "I look.",
        opaque(redacted, kind="redacted_thinking"),
        make.tool(),
    )
    first, result = answered(*parts, format="anthropic", provider="anthropic")
    assert [block["type"] for block in first["content"]] == ["thinking", "text", "redacted_thinking", "tool_use"]
    assert first["content"][0] == THINKING
    assert first["content"][2] == redacted
    assert result["content"][0]["type"] == "tool_result"


def test_thinking_between_two_texts_stays_between_them() -> None:
    later = {**THINKING, "thinking": "And now?"}
    [answer] = answered(opaque(), "One.", opaque(later), "Two.", opaque(), format="anthropic", provider="anthropic")
    assert [block.get("thinking", block.get("text")) for block in answer["content"]] == [
        *("Add them.", "One.", "And now?", "Two.", "Add them."),
    ]


def test_reasoning_items_go_back_to_openai_in_their_places() -> None:
    item = {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA", "summary": []}
    parts = (opaque(item, provider="openai", kind="reasoning"), make.tool(), "Done.")
    items = answered(*parts, format="openai_responses", provider="openai")
    assert [each["type"] for each in items] == ["reasoning", "function_call", "function_call_output", "message"]
    assert items[0] == item


def test_signatures_go_back_to_gemini_on_their_parts() -> None:
    def signed(text: str) -> ProviderPart:
        return opaque({"thoughtSignature": text}, provider="gemini", kind="thought_signature")

    parts = (signed("A"), "I look.", signed("B"), make.tool(), make.tool(tool_call_id="call_2"))
    answer, _ = answered(*parts, format="gemini", provider="gemini")
    assert [part.get("thoughtSignature") for part in answer["parts"]] == ["A", "B", None]
    [ended] = answered("Done.", signed("C"), format="gemini", provider="gemini")
    assert ended["parts"] == [{"text": "Done."}, {"text": "", "thoughtSignature": "C"}]
    unsigned, _ = answered(make.tool(), format="gemini", provider="gemini")
    assert unsigned["parts"][0]["thoughtSignature"] == SIGNATURE


@pytest.mark.parametrize(
    ("format", "provider"),
    [("openai_chat", ""), ("openai_responses", "openai"), ("gemini", "gemini"), ("anthropic", "")],
)
def test_to_another_provider_it_is_as_if_it_were_not_there(format: str, provider: str) -> None:
    parts = ("I look.", make.tool(), "Done.")
    with_it = answered(opaque(), parts[0], opaque(), *parts[1:], opaque(), format=format, provider=provider)
    assert with_it == answered(*parts, format=format, provider=provider)


@pytest.mark.parametrize(
    "data",
    [
        *("no JSON", "[]", '"c2ln"', '{"type": "tool_use", "id": "x", "name": "rm", "input": {}}'),
        *('{"type": "thinking", "n": NaN}', '{"type": "thinking", "n": 1e999}', '{"type": "thinking", "n": "\\ud83d"}'),
        '{"type": "thinking", "n": ' + "[" * 3_000 + "]" * 3_000 + "}",
        '{"type": "thinking", "n": ' + "1" * 5_000 + "}",
    ],
    ids=lambda data: data[:40],
)
def test_what_could_not_go_back_as_it_came_is_left_out(data: str) -> None:
    [answer] = answered(opaque(data), "High.", format="anthropic", provider="anthropic")
    assert answer["content"] == [{"type": "text", "text": "High."}]


def test_the_manifest_names_only_what_goes_back_to_the_provider_that_gave_it() -> None:
    said = make.message(1, "user", opaque(), "How high?")
    answer = make.message(2, "assistant", opaque(), opaque(provider="openai", kind="reasoning"), "High.")
    for provider, named in {"anthropic": ["part_0002_0"], "openai": ["part_0002_1"], "gemini": None, "": None}.items():
        rows = prompt([said, answer], provider=provider).manifest
        assert [row.get("opaque") for row in rows] == [None, named]


@given(make.contexts(), st.integers(200, 12_000), st.sampled_from(["", "anthropic", "openai"]))
def test_the_manifest_makes_the_same_prompt_again_and_fits(entries: list[Any], usable: int, provider: str) -> None:
    arguments: dict[str, Any] = {"system_prompt": "Be careful.", "tools": []}
    assembled = assemble(entries, budget=make.budget(usable), provider=provider, **arguments)
    again = rebuild(read_manifest(assembled.manifest), entries, **arguments)
    assert again.messages == assembled.messages
    assert assembled.used_tokens <= usable
    given_to = {each.part.provider for message in assembled.messages for each in message.opaque}
    assert given_to <= {provider} - {""}
    blocks = blocks_of(assembled.manifest, entries, **arguments)
    sent = sum(len(message.opaque) for message in assembled.messages)
    assert sum(block.kind is BlockKind.OPAQUE for block in blocks) == sent


def test_a_row_without_the_mark_is_read_as_it_was_sent() -> None:
    entries = make.entries_of(make.turn(1, "How high?", opaque(), "High."))
    plain = assemble(entries, system_prompt="", tools=[], budget=make.budget(10_000))
    assert all("opaque" not in row for row in plain.manifest)
    assert rebuild(plain.manifest, entries, system_prompt="", tools=[]).messages == plain.messages


def test_what_is_not_to_be_interpreted_is_in_no_prompt_and_no_summary() -> None:
    citation = CitationPart(text="fourteen metres", url="https://a.example")
    messages = make.turn(1, "How high?", UNKNOWN, citation, opaque(), "High.")
    assert [message.text for message in prompt(messages, provider="openai").messages] == ["How high?", "High."]
    assert transcript_pieces(messages, 1_000) == ["[1 user, 2026-01-02] How high?\n[2 assistant] High."]


def test_a_summary_is_made_of_refusals_pictures_and_what_providers_ran() -> None:
    messages = make.turn(1, "How high?", SEARCH, IMAGE, RefusalPart(text="I will not."))
    [piece] = transcript_pieces(messages, 1_000)
    assert piece.splitlines() == [
        "[1 user, 2026-01-02] How high?",
        '[2 tool web_search input] {"query": "tide"}',
        "[2 tool web_search output] []",
        "[2 assistant image file_7] quay.png (image/png)",
        "The quay at noon",
        "[2 assistant] I will not.",
    ]
    assert [quotable.label for quotable in message_quotables(messages)] == [
        "1 user",
        "2 tool web_search",
        "2 assistant",
    ]
    assert file_ids_of(messages) == ("file_7",)


def test_a_call_keeps_every_parameter_that_is_sent_with_it() -> None:
    payload = {"messages": [], "tools": [], "response_format": {}, "temperature": 0.5, "anything": 1}
    request = Request(payload=payload, max_output_tokens=9, seconds=3.0, max_characters=7)
    assert request.parameters() == {"max_output_tokens": 9, "sent": {"temperature": 0.5, "anything": 1}}
    assert Request(payload={"messages": []}, max_output_tokens=9).parameters() == {"max_output_tokens": 9}
