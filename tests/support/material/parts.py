"""Parts of every type, made at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from mnesis_core.messages import (
    AudioPart,
    CitationPart,
    CompactionMarkerPart,
    DataPart,
    DocumentPart,
    FileRefPart,
    ImagePart,
    Part,
    PatchPart,
    ProviderPart,
    ProviderToolPart,
    ReasoningPart,
    RefusalPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
    ToolState,
    UnknownPart,
)

# What JSON of others may be: no JSON, hostile JSON, and JSON that a database would write in another way.
EXACT = st.sampled_from(
    [
        *('{"signature": "c2ln", "type": "thinking", "thinking": "hm"}', '{"b":1,  "a":1}', '{"a":1,"a":2}', "1e999"),
        *(
            "NaN",
            '"\\u0000 \\ud83d"',
            '{"n": 123456789012345678901234567890}',
            "[" * 3_000 + "]" * 3_000,
            "no JSON",
            "",
        ),
    ]
)
NASTY = st.text(max_size=30) | st.sampled_from(
    ["NUL \0", "half \ud83d", "␛0000", "lines \u2028\r\n", '"\\', "x" * 5_000]
)
NAMES = st.sampled_from(["anthropic", "openai", "gemini", "x.y-z_1"])
SHORT = st.sampled_from(["", "web_search", "call_1", "name ü"])
NUMBERS = st.integers(0, 2**53)
_MEDIA: dict[str, Any] = {
    "file_id": st.sampled_from(["", "file_01JD3Z4XHGW0G4G4G4G4G4G4G4"]),
    **dict.fromkeys(("media_type", "name", "caption", "source", "tool_call_id"), NASTY),
    "size": NUMBERS,
}
_BY_TYPE: dict[type[Any], st.SearchStrategy[Any]] = {
    TextPart: st.builds(TextPart, text=NASTY),
    ReasoningPart: st.builds(ReasoningPart, text=NASTY),
    RefusalPart: st.builds(RefusalPart, text=NASTY),
    ToolPart: st.builds(
        ToolPart,
        tool_name=SHORT,
        tool_call_id=SHORT,
        input=NASTY | EXACT,
        output=st.none() | NASTY,
        state=st.just(ToolState.COMPLETED),
    ),
    FileRefPart: st.builds(FileRefPart, file_id=SHORT, path=NASTY, file_type=NASTY, exploration_summary=NASTY),
    CompactionMarkerPart: st.builds(CompactionMarkerPart, summary_id=NASTY, level=NUMBERS),
    StepStartPart: st.builds(StepStartPart, step_index=NUMBERS),
    StepFinishPart: st.builds(StepFinishPart, step_index=NUMBERS),
    PatchPart: st.builds(PatchPart, unified_diff=NASTY, files_changed=st.just(("a.py", "b.py"))),
    DataPart: st.builds(DataPart, label=SHORT, text=NASTY | EXACT),
    ImagePart: st.builds(ImagePart, width=NUMBERS, height=NUMBERS, **_MEDIA),
    AudioPart: st.builds(AudioPart, **_MEDIA),
    DocumentPart: st.builds(DocumentPart, **_MEDIA),
    ProviderPart: st.builds(
        ProviderPart,
        provider=NAMES,
        kind=NAMES,
        data=EXACT,
        model=st.sampled_from(["", "claude-opus-4-6", "anthropic.claude-v1:0", "a/b"]),
        prompt=st.sampled_from(["", "0" * 32]),
    ),
    ProviderToolPart: st.builds(
        ProviderToolPart,
        provider=NAMES,
        tool_name=SHORT,
        tool_call_id=SHORT,
        input=NASTY | EXACT,
        output=st.none() | NASTY,
        error=st.none() | NASTY,
        data=EXACT,
    ),
    CitationPart: st.builds(
        CitationPart,
        **dict.fromkeys(("text", "title", "url", "file_id", "message_id", "place"), NASTY),
        start=NUMBERS,
        end=NUMBERS,
        provider=NAMES | st.just(""),
        data=EXACT,
    ),
    UnknownPart: st.builds(
        UnknownPart, type=st.sampled_from(["hologram", "", "x" * 16]), data=EXACT | NASTY, label=SHORT
    ),
}


def part_types() -> set[type[Any]]:
    return set(_BY_TYPE)


def any_part() -> st.SearchStrategy[Part]:
    return st.one_of(list(_BY_TYPE.values()))
