"""Pictures in a prompt: which rule counts and scales them, which leave first, and what each provider is sent."""

from __future__ import annotations

import base64
from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.context.assembly import assemble, rebuild
from mnesis_core.context.entries import Assembled, MessageEntry, Picture
from mnesis_core.context.fitting import Budget
from mnesis_core.context.manifests import fold_manifest, outlines_of, unfold_manifest
from mnesis_core.context.pictures import MOST_PICTURES
from mnesis_core.context.prompt_diff import difference
from mnesis_core.context.replay import blocks_of
from mnesis_core.files.pictures import (
    ANTHROPIC,
    GEMINI,
    OPENAI,
    OPENAI_4O_MINI,
    OPENAI_5,
    OPENAI_MINI,
    OPENAI_NANO,
    OPENAI_O,
    OPENAI_O4_MINI,
    PATCH,
    PDF,
    RULES,
    fitted,
    read_data_url,
    rule_for,
)
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import FileRefPart, ImagePart
from mnesis_core.providers.answer import PICTURE_TOKENS, estimate_payload
from mnesis_core.providers.rendering import RENDERERS, render, with_data
from tests.core.context.contexts import message, prose, tool
from tests.support.material.drawings import data_url, drawing

DATA = b"picture"
LONG = prose(6_000)
ROOM = estimate_text(LONG) + 2_500  # for two pictures beside it
ENCODED = base64.b64encode(DATA).decode()


def budget(usable: int) -> Budget:
    return Budget(
        window=usable, reserved_output=0, reserve=0, usable=usable, soft=usable, hard=usable, target=usable // 2
    )


def picture(tokens: int = 1_000, size: int = 1_000) -> Picture:
    return Picture(content_id="c" * 64, media_type="image/png", width=10, height=10, size=size, tokens=tokens)


def asked(seq: int, *, pictures: int = 1, text: str = "Look") -> MessageEntry:
    parts = [FileRefPart(file_id=f"file_{seq}_{n}", path="a.png", file_type="image") for n in range(pictures)]
    return MessageEntry(position=seq, message=message(seq, "user", text, *parts))


def assembled(entries: list[MessageEntry], known: Picture | None = None, *, usable: int = 100_000) -> Assembled:
    ids = [f"file_{entry.message.seq}_{n}" for entry in entries for n in range(30)] + ["file_result"]
    pictures = dict.fromkeys(ids, known or picture())
    return assemble(entries, system_prompt="", tools=(), budget=budget(usable), pictures=pictures)


def shown(prompt: Any) -> list[int]:
    return [len(said.pictures) for said in prompt.messages]


PATCHES = replace(OPENAI_MINI, tokens=lambda width, height: ceil(width / PATCH) * ceil(height / PATCH))


@pytest.mark.parametrize(
    ("rule", "size", "sent", "tokens"),
    [
        (ANTHROPIC, (200, 200), (200, 200), 54),  # the documentation's own examples
        (ANTHROPIC, (1000, 1000), (1000, 1000), 1334),
        (ANTHROPIC, (1092, 1092), (1092, 1092), 1590),
        (ANTHROPIC, (8000, 100), (1568, 20), 42),
        (ANTHROPIC, (3000, 2000), (1342, 894), 1600),
        (OPENAI, (1024, 1024), (768, 768), 765),
        (OPENAI, (2048, 4096), (768, 1536), 1105),
        (OPENAI, (4096, 8192), (768, 1536), 1105),
        (PATCHES, (1024, 1024), (1024, 1024), 1024),  # the documentation's own examples, before the multiplier
        (PATCHES, (1800, 2400), (1056, 1408), 1452),
        (OPENAI_5, (1024, 1024), (768, 768), 630),
        (OPENAI_4O_MINI, (1024, 1024), (768, 768), 25_501),
        (OPENAI_MINI, (1024, 1024), (1024, 1024), 1659),
        (OPENAI_NANO, (1800, 2400), (1056, 1408), 3572),
        (OPENAI_O4_MINI, (1800, 2400), (1056, 1408), 2498),
        (OPENAI_MINI, (50_000, 1), (2048, 1), 104),
        (GEMINI, (384, 384), (384, 384), 258),
        (GEMINI, (1536, 800), (1536, 800), 1032),
        (GEMINI, (50_000, 1), (3072, 1), 1032),
    ],
)
def test_each_family_scales_and_counts_by_its_own_rule(rule: Any, size: Any, sent: Any, tokens: int):
    assert fitted(*size, rule) == sent
    assert rule.tokens(*sent) == tokens


@given(st.integers(1, 60_000), st.integers(1, 60_000), st.sampled_from([*RULES.values()]))
def test_a_picture_is_never_enlarged_and_never_too_large(width: int, height: int, rule: Any):
    sent = fitted(width, height, rule)
    assert 1 <= sent[0] <= width
    assert 1 <= sent[1] <= height
    assert max(sent) <= rule.longest
    assert not rule.patches or ceil(sent[0] / PATCH) * ceil(sent[1] / PATCH) <= rule.patches
    assert fitted(*sent, rule) == sent or rule.pixels  # rounding may leave a pixel more than the area has


def test_the_family_is_told_by_the_models_name():
    names = {
        "anthropic/claude-sonnet-4": ANTHROPIC,
        "bedrock/eu.anthropic.claude-x": ANTHROPIC,
        "vertex_ai/gemini-2.5-pro": GEMINI,
        "openai/gpt-4o": OPENAI,
        "openai/gpt-5": OPENAI_5,
        "openai/gpt-4o-mini": OPENAI_4O_MINI,
        "azure/o3": OPENAI_O,
        "openai/responses/gpt-5-mini": OPENAI_MINI,
        "azure/gpt-4.1-mini-2025-04-14": OPENAI_MINI,
        "openrouter/openai/gpt-5-nano": OPENAI_NANO,
        "gpt-4.1-nano": OPENAI_NANO,
        "openai/o4-mini": OPENAI_O4_MINI,
        "ollama/llava": OPENAI,
    }
    assert {name: rule_for(name) for name in names} == names


def test_a_data_url_is_told_by_its_bytes():
    sent = read_data_url(data_url(drawing(kind="JPEG"), "image/png"), place="x")
    assert (sent.media_type, sent.name[-4:]) == ("image/jpeg", ".jpg")


def test_a_context_without_pictures_is_what_it_was():
    entries = [asked(1), MessageEntry(position=2, message=message(2, "assistant", "Seen"))]
    plain = assemble(entries, system_prompt="", tools=(), budget=budget(10_000))
    assert assemble(entries, system_prompt="", tools=(), budget=budget(10_000), pictures={}) == plain
    assert "pictures" not in str(plain.manifest)


def test_the_same_prompt_is_rebuilt_from_its_folded_manifest():
    entries = [asked(1, pictures=2), asked(2)]
    prompt = assembled(entries)
    assert shown(prompt) == [2, 1]
    folded = fold_manifest(prompt.manifest, entries)
    manifest = unfold_manifest(folded, outlines_of(entries), at=0)
    assert manifest == prompt.manifest
    again = rebuild(manifest, entries, system_prompt="", tools=())
    assert again.messages == prompt.messages
    blocks = [block for block in blocks_of(manifest, entries, system_prompt="", tools=()) if block.picture]
    assert len(blocks) == 3
    assert all(block.tokens > 1_000 for block in blocks)


def test_the_oldest_leave_first_and_many_at_once():
    entries = [asked(seq) for seq in range(1, MOST_PICTURES + 1)]
    assert shown(assembled(entries)) == [1] * MOST_PICTURES
    entries.append(asked(MOST_PICTURES + 1))
    fewer = assembled(entries)
    kept = MOST_PICTURES // 2
    assert shown(fewer) == [0] * (len(entries) - kept) + [1] * kept
    assert [left.kind for left in fewer.left_out] == ["picture"] * (len(entries) - kept)
    assert "file_1_0" in fewer.messages[0].text  # what stays of a picture names its file
    # For as many questions as have left, what was sent before stays as it was.
    for seq in range(MOST_PICTURES + 2, MOST_PICTURES + 2 + kept):
        longer = assembled([*entries, asked(seq)])
        entries.append(asked(seq))
        assert longer.messages[: len(fewer.messages)] == fewer.messages
        fewer = longer


def test_a_question_with_more_than_fit_keeps_its_last():
    prompt = assembled([asked(1), asked(2, pictures=MOST_PICTURES + 5)])
    assert shown(prompt) == [0, MOST_PICTURES]
    assert shown(assembled([asked(1), asked(2)], picture(size=10_000_000))) == [0, 1]
    assert shown(assembled([asked(1)], picture(size=16_000_000))) == [0]


@pytest.mark.parametrize(("rule", "most"), [(ANTHROPIC, 32_000_000), (OPENAI, 50_000_000), (GEMINI, 20_000_000)])
def test_the_pictures_of_a_request_leave_room_for_its_text(rule: Any, most: int):
    """The limits are those of a whole request, and a million tokens of English are some 4.5 MB."""
    entries = [asked(1, pictures=2), asked(2, pictures=2)]
    fitting = picture(size=rule.together // 4)
    prompt = assemble(entries, system_prompt="", tools=(), budget=budget(100_000), **pictured(fitting, rule))
    assert shown(prompt) == [2, 2]
    prompt = assemble(
        entries,
        system_prompt="",
        tools=(),
        budget=budget(100_000),
        **pictured(picture(size=fitting.size + 1), rule),
    )
    assert sum(shown(prompt)) < 4
    assert rule.together * 4 / 3 + 4_500_000 < most


def pictured(known: Picture, rule: Any) -> dict[str, Any]:
    ids = [f"file_{seq}_{n}" for seq in (1, 2) for n in (0, 1)]
    return {"pictures": dict.fromkeys(ids, known), "picture_bytes": rule.together}


def test_the_pages_of_documents_have_a_limit_together():
    entries = [asked(1), asked(2), asked(3)]
    assert shown(assembled(entries, replace(picture(), pages=33))) == [1, 1, 1]
    assert shown(assembled(entries, replace(picture(), pages=34))) == [0, 0, 1]
    rows = assembled(entries, replace(picture(), pages=33)).manifest
    assert rows[0]["pictures"][0]["pages"] == 33


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.integers(300, 9_000), st.integers(1, 3_000))
def test_the_window_is_kept_to(counts: list[int], usable: int, tokens: int):
    entries = [asked(seq, pictures=count, text=prose(60)) for seq, count in enumerate(counts, start=1)]
    prompt = assembled(entries, picture(tokens), usable=usable)
    assert prompt.used_tokens <= usable
    rows = [row for row in prompt.manifest if row["kind"] == "message"]
    assert sum(one["tokens"] for row in rows for one in row.get("pictures", ())) <= usable // 2


def test_words_push_pictures_out_but_not_the_newest():
    entries = [asked(1), asked(2, text=LONG), asked(3)]
    assert shown(assembled(entries, usable=ROOM)) == [0, 1, 1]
    assert shown(assembled(entries, usable=ROOM - 1_000)) == [0, 0, 1]
    # Where there is no room for it either, words are cut.
    prompt = assembled(entries, usable=ROOM - 2_500)
    assert shown(prompt)[-1] == 1
    assert sum(shown(prompt)) == 1
    assert any(row.get("shortened") for row in prompt.manifest)


def test_a_request_diff_tells_of_pictures():
    entries = [asked(1), asked(2, text=LONG), asked(3)]
    before, after = (assembled(entries, usable=usable).manifest for usable in (ROOM, ROOM - 1_000))
    [change] = difference(before, after)
    assert (change.change, change.kind, change.id, change.reason) == (
        "omitted",
        "picture",
        "part_0002_1",
        "over_budget",
    )
    [change] = difference(after, before)
    assert (change.change, change.reason) == ("unomitted", "fits_again")


def result(role: Any = "assistant", call_id: str = "call_1") -> list[MessageEntry]:
    image = ImagePart(file_id="file_result", media_type="image/png", name="shot.png", tool_call_id=call_id)
    return [asked(1, pictures=0), MessageEntry(position=2, message=message(2, role, tool("shoot"), image))]


def test_users_and_calls_show_pictures_and_the_user_those_that_the_assistant_made():
    assert assembled(result()).messages[1].tool_results[0].pictures
    *_, answer, behind = assembled(result(call_id="")).messages
    assert (answer.role, answer.pictures) == ("assistant", ())
    assert (behind.role, len(behind.pictures)) == ("user", 1)
    assert not assembled(result(call_id="other")).manifest[1].get("pictures")


def test_a_call_that_failed_shows_none():
    image = ImagePart(file_id="file_result", media_type="image/png", name="shot.png", tool_call_id="call_1")
    failed = replace(tool("shoot"), output=None, error="No.")
    entries = [asked(1, pictures=0), MessageEntry(position=2, message=message(2, "assistant", failed, image))]
    assert not assembled(entries).manifest[1].get("pictures")


@pytest.mark.parametrize("format", RENDERERS)
def test_every_format_has_the_bytes_of_questions_and_results(format: str):
    prompt = with_data(assembled([asked(0), *result()]), lambda _: DATA)
    payload = str(render(prompt, provider=format))
    assert payload.count(ENCODED) == 2


def test_results_of_chat_completions_are_texts_and_their_pictures_follow():
    messages = render(with_data(assembled(result()), lambda _: DATA))["messages"]
    assert [said["role"] for said in messages] == ["user", "assistant", "tool", "user"]
    assert isinstance(messages[2]["content"], str)
    assert messages[3]["content"] == [
        {"type": "text", "text": "[What the call shoot returned shows:]"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{ENCODED}"}},
    ]


@pytest.mark.parametrize("media_type", ["image/png", PDF, "audio/wav"])
def test_the_bytes_of_what_is_shown_count_as_no_text(media_type: str):
    shown = replace(picture(), media_type=media_type)
    payload = render(with_data(assembled([asked(1)], shown), lambda _: bytes(300_000)))
    assert PICTURE_TOKENS < estimate_payload(payload) < PICTURE_TOKENS + 200


def test_audio_is_in_the_formats_that_take_it():
    prompt = with_data(assembled([asked(1)], replace(picture(), media_type="audio/mpeg", seconds=7)), lambda _: DATA)
    payloads = {format: str(render(prompt, provider=format)) for format in RENDERERS}
    assert [format for format, payload in payloads.items() if ENCODED in payload] == ["openai_chat", "gemini"]
    assert all("file_1_0" in payload for payload in payloads.values())
    [row] = assembled([asked(1)], replace(picture(), seconds=7)).manifest
    assert row["pictures"][0]["seconds"] == 7
