"""What of a request of OpenAI's Chat Completions is new to the record, and how an answer reads."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count

import pytest

from mnesis_core.errors import InvalidRequest, ModelRateLimited, SessionBusy
from mnesis_core.llm.interface import ToolCall
from mnesis_core.messages import (
    ImagePart,
    Message,
    ReasoningPart,
    RefusalPart,
    StoredMessage,
    StoredPart,
    TextPart,
    ToolPart,
    ToolState,
)
from mnesis_core.records import UsageRecord
from mnesis_core.turns.completions import check_supported, read_completion, read_content, read_end, read_error, unused
from mnesis_core.turns.requests import (
    Answered,
    Head,
    Known,
    RequestDiff,
    RequestMessage,
    Speech,
    Thought,
    diff_request,
    finish_reason,
    known_from,
    pieces_of,
)
from tests.support.material.drawings import drawing, image_part

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NUMBERS = count(1)
EMPTY = Known()
LOOK = ToolCall(id="part_c", name="look", arguments="{}")


def user(text: str) -> RequestMessage:
    return RequestMessage(role="user", text=text)


def said(text: str, *calls: ToolCall) -> RequestMessage:
    return RequestMessage(role="assistant", text=text, tool_calls=calls)


def system(text: str) -> RequestMessage:
    return RequestMessage(role="system", text=text)


def result(call_id: str, text: str) -> RequestMessage:
    return RequestMessage(role="tool", text=text, tool_call_id=call_id)


def news_of(messages: list[RequestMessage], known: Known) -> RequestDiff:
    return diff_request(tuple(messages), known)


def stored(role: str, *texts: str, turn: int = 1, calls: tuple[str, ...] = ()) -> StoredMessage:
    parts = [TextPart(text=text) for text in texts]
    tools = [ToolPart(tool_name="look", tool_call_id="call_1") for _ in calls]
    ids = [*(f"part_{next(NUMBERS)}" for _ in parts), *calls]
    return StoredMessage(
        id=f"msg_{next(NUMBERS)}",
        seq=next(NUMBERS),
        turn_id=f"turn_{turn}",
        role=role,  # type: ignore[arg-type]
        parts=tuple(
            StoredPart(id=id, index=index, part=part, token_estimate=1)
            for index, (id, part) in enumerate(zip(ids, [*parts, *tools], strict=True))
        ),
        created_at=NOW,
    )


def spoken(news: RequestDiff) -> list[tuple[str, str]]:
    return [(message.role, message.parts[0].text) for message in news.earlier if isinstance(message.parts[0], TextPart)]


KNOWN = known_from(
    [
        stored("user", "What is due?"),
        stored("assistant", "The tide table."),
        stored("user", "Thanks", turn=2),
        stored("assistant", "I search.", turn=2, calls=("part_c",)),
        stored("assistant", "You are welcome.", turn=2),
    ]
)


@pytest.mark.parametrize(
    "messages",
    [
        [user("Next?")],
        [user("What is due?"), said("The tide table."), user("Thanks"), said("You are welcome."), user("Next?")],
        [user("Thanks"), said("I search.\n\nYou are welcome."), user("Next?")],
        [said("You are welcome. "), user("Next?")],
        [user("What is due?"), said("Something that the user put in its place"), user("Next?")],
        [user("A summary that the client made"), said("Of everything"), user("Next?")],
        [user("Hm"), said("", LOOK), result("part_c", "9"), said("Reworded"), user("Next?")],
    ],
    ids=["new only", "everything", "trimmed", "cut in an exchange", "edited", "reworded", "by its call"],
)
def test_only_what_follows_the_last_answer_is_new(messages):
    assert news_of(messages, KNOWN) == RequestDiff(message="Next?")


def test_an_exchange_that_happened_elsewhere_is_new_after_one_that_is_known():
    messages = [user("Thanks"), said("You are welcome."), user("And elsewhere?"), said("There too."), user("Next?")]
    news = news_of(messages, KNOWN)
    assert spoken(news) == [("user", "And elsewhere?"), ("assistant", "There too.")]
    assert news.message == "Next?"


def test_all_of_it_is_new_to_an_empty_session():
    news = news_of([system("Be brief."), user("Hello"), said("Hi"), system("Now be long."), user("Next?")], EMPTY)
    assert news.system_prompt == "Be brief."
    assert spoken(news) == [("user", "Hello"), ("assistant", "Hi"), ("system", "Now be long.")]
    assert news.message == "Next?"


def test_the_same_word_said_twice_is_said_twice():
    assert news_of([user("Thanks")], KNOWN).message == "Thanks"
    assert news_of([user("Thanks"), said("You are welcome."), user("Thanks")], KNOWN).message == "Thanks"


def test_questions_in_a_row_are_one():
    assert news_of([said("You are welcome."), user("One"), user("Two")], KNOWN).message == "One\n\nTwo"


def test_results_go_to_the_calls_that_the_record_waits_for():
    call = ToolCall(id="part_c", name="look", arguments="{}")
    for messages in ([result("part_c", "9")], [user("Thanks"), said("", call), result("part_c", "9")]):
        news = news_of(messages, KNOWN)
        assert (news.message, news.earlier) == (None, ())
        assert [(one.tool_call_id, one.text) for one in news.results] == [("part_c", "9")]


def test_calls_that_were_made_elsewhere_come_with_their_results():
    first, second = (ToolCall(id="0", name="look", arguments=f'{{"n": {n}}}') for n in (1, 2))
    messages = [user("Look"), said("", first), result("0", "one"), said("", second), result("0", "two")]
    news = news_of(messages, EMPTY)
    assert (news.message, news.results) == (None, ())
    outputs = [part.output for message in news.earlier for part in message.parts if isinstance(part, ToolPart)]
    assert outputs == ["one", "two"]


def test_a_call_without_a_result_is_closed():
    call = ToolCall(id="0", name="look", arguments="{}")
    [_, message] = news_of([user("Look"), said("", call), user("Never mind")], EMPTY).earlier
    assert isinstance(message.parts[0], ToolPart)
    assert (message.parts[0].state, message.parts[0].output) == (ToolState.ERROR, None)
    assert message == Message(role="assistant", parts=message.parts)


@pytest.mark.parametrize(
    ("messages", "known"),
    [
        ([], EMPTY),
        ([system("Be brief.")], EMPTY),
        ([user("Hello"), said("Hi")], EMPTY),
        ([user("Hello"), said("Hi")], KNOWN),
        ([user("Hello"), result("0", "nobody asked"), said("Hi"), user("Next?")], EMPTY),
        ([user("Next?"), result("part_c", "9")], KNOWN),
        ([result("part_c", "9"), user("Next?")], KNOWN),
    ],
)
def test_what_cannot_be_answered_is_refused(messages, known):
    with pytest.raises(InvalidRequest) as refused:
        news_of(messages, known)
    assert refused.value.details["field"].startswith("messages")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2),
        ("logprobs", True),
        ("top_logprobs", 3),
        ("modalities", ["text", "audio"]),
        ("functions", [{}]),
        ("n", [2]),
        ("modalities", {"a": 1}),
    ],
)
def test_another_kind_of_answer_is_refused(name, value):
    with pytest.raises(InvalidRequest) as refused:
        check_supported({name: value})
    assert refused.value.details["field"] == name


def test_what_only_flavours_an_answer_is_named():
    check_supported({"temperature": 0.2, "n": 1, "response_format": {"type": "text"}, "stop": None})
    assert unused({"max_tokens": 5, "n": 1}) == ()
    assert unused({"seed": 1, "model": "demo", "top_k": 0, "stop": None, "logit": 0.5}) == ("logit", "top_k")


def test_text_parts_are_kept_and_others_refused():
    told = [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
    assert read_content(told, field="x") == ("a\nb", ())
    assert read_content(None, field="x") == ("", ())
    for part in ({"type": "image_url", "image_url": {}}, {"type": "text"}, {"type": "text", "text": 1}, {}):
        with pytest.raises(InvalidRequest) as refused:
            read_content([{"type": "text", "text": "a"}, part], field="messages.0.content")
        assert refused.value.details["field"] == "messages.0.content.1.type"


def test_a_users_pictures_are_read():
    picture = drawing()
    text, [sent] = read_content([{"type": "text", "text": "a"}, image_part(picture)], field="x", may_show=True)
    assert (text, sent.media_type, sent.data) == ("a", "image/png", picture)
    for url in ("ftp://example.com/a.png", "data:image/png;base64,%", 5, None):
        with pytest.raises(InvalidRequest) as refused:
            read_content([{"type": "image_url", "image_url": {"url": url}}], field="x", may_show=True)
        assert refused.value.details["field"] == "x.0.image_url"


@pytest.mark.parametrize(
    ("state", "provider", "calls", "expected"),
    [
        ("completed", "stop", False, "stop"),
        ("completed", "end_turn", False, "stop"),
        ("completed", "length", False, "length"),
        ("completed", "content_filter", False, "content_filter"),
        ("suspended", "tool_calls", True, "tool_calls"),
        ("incomplete", "", False, "length"),
        ("cancelled", "", False, "stop"),
    ],
)
def test_why_it_ended_in_openais_words(state, provider, calls, expected):
    assert finish_reason(state, provider, has_calls=calls) == expected


def test_an_answer_reads_the_same_whole_and_in_chunks():
    call = ToolCall(id="part_c", name="look", arguments='{"at": "\ud800"}')
    answered = Answered(
        head=Head(turn_id="turn_1", session_id="sess_1", model="demo", created=1),
        text="",
        tool_calls=(call,),
        finish_reason="tool_calls",
        state="suspended",
        usage=UsageRecord(tokens_input=3, tokens_output=4, tokens_cache_read=2),
    )
    whole = read_completion(answered)
    message = whole["choices"][0]["message"]
    assert (message["content"], message["tool_calls"][0]["id"]) == (None, "part_c")
    assert whole["usage"]["total_tokens"] == 7
    called, ended, usage = read_end(answered, include_usage=True, is_first=True)
    assert called["choices"][0]["delta"]["role"] == "assistant"
    assert called["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] == '{"at": "\ufffd"}'
    assert ended["choices"][0]["finish_reason"] == "tool_calls"
    assert (usage["choices"], usage["usage"]) == ([], whole["usage"])
    assert {piece["id"] for piece in (whole, called, ended, usage)} == {"chatcmpl-turn_1"}


def test_a_refusal_reads_as_openai_has_it_and_comes_back_as_one():
    head = Head(turn_id="turn_1", session_id="sess_1", model="demo", created=1)
    values = {"finish_reason": "stop", "state": "completed", "usage": UsageRecord()}
    answered = Answered(head=head, text="", refusal="I will not.", **values)
    message = read_completion(answered)["choices"][0]["message"]
    assert (message["content"], message["refusal"]) == (None, "I will not.")
    said, ended = read_end(answered, include_usage=False, is_first=True)
    assert said["choices"][0]["delta"] == {"role": "assistant", "content": None, "refusal": "I will not."}
    assert ended["choices"][0]["finish_reason"] == "stop"
    told = [user("Do it."), RequestMessage(role="assistant", refusal="I will not."), user("Why?")]
    assert news_of(told, EMPTY).earlier[1].parts == (RefusalPart(text="I will not."),)


def test_errors_carry_our_codes_in_openais_shape():
    assert read_error(SessionBusy(turn_id="turn_1"))["error"]["code"] == "SESSION_BUSY"
    assert read_error(InvalidRequest("no", field="n"))["error"]["param"] == "n"
    assert read_error(ModelRateLimited())["error"]["type"] == "rate_limit_error"


def created(message_id: str) -> dict[str, object]:
    return {"type": "message.created", "data": {"message_id": message_id}}


def delta(message_id: str, offset: int, text: str, *, index: int = 0, kind: str = "text") -> dict[str, object]:
    place = {"message_id": message_id, "part_index": index, "part_type": kind}
    return {"type": "delta", **place, "offset": offset, "text": text}


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([created("a"), delta("a", 0, "I "), delta("a", 2, "look.")], "I look."),
        ([created("a"), delta("a", 0, "I "), delta("a", 0, "I look."), delta("a", 0, "I look.")], "I look."),
        ([created("a"), delta("a", 0, "hm", kind="reasoning"), delta("a", 0, "I look.", index=1)], "I look."),
        ([created("a"), delta("a", 0, "One", index=0), delta("a", 0, "Two", index=1)], "One\n\nTwo"),
        (
            [
                *(created("a"), delta("a", 0, "I "), delta("b", 0, "It")),
                *(delta("a", 2, "look."), created("b"), delta("b", 2, " is.")),
            ],
            "I look.\n\nIt is.",
        ),
        ([delta("a", 0, "never told of"), {"type": "caught_up", "seq": 3}], ""),
    ],
    ids=["grows", "again", "reasoning", "parts", "ahead of the events", "unknown"],
)
def test_what_is_said_is_one_text_that_grows(frames, text):
    speech = Speech()
    pieces = [piece for frame in frames for piece in speech.take(frame)]
    assert "".join(piece for piece in pieces if isinstance(piece, str)) == text


def test_thinking_comes_in_its_places_and_is_divided_by_itself():
    speech = Speech()
    frames = [
        *(created("a"), delta("a", 0, "Hm", kind="reasoning"), delta("a", 2, ".", kind="reasoning")),
        delta("a", 0, "I look.", index=1),
        *(created("b"), delta("b", 0, "So", kind="reasoning"), delta("b", 0, "It is.", index=1)),
    ]
    came = [piece for frame in frames for piece in speech.take(frame)]
    assert came == [Thought("Hm"), Thought("."), "I look.", Thought("\n\nSo"), "\n\nIt is."]
    said = ((ReasoningPart, "Hm."), (TextPart, "I look."), (TextPart, ""), (ReasoningPart, "So"), (TextPart, "It is."))
    whole = list(pieces_of([kind(text=text) for kind, text in said]))
    assert whole == [Thought("Hm."), "I look.", Thought("\n\nSo"), "\n\nIt is."]


def test_a_result_that_is_an_error_is_one_in_the_record_and_keeps_its_pictures():
    call = ToolCall(id="0", name="look", arguments="{}")
    _, [picture] = read_content([image_part(drawing())], field="x", may_show=True)
    failed = RequestMessage(role="tool", text="no light", tool_call_id="0", is_error=True, pictures=(picture,))
    news = news_of([user("Look"), said("", call), failed], EMPTY)
    tool, image = news.earlier[1].parts
    assert isinstance(tool, ToolPart)
    assert (tool.output, tool.error, tool.state) == (None, "no light", ToolState.ERROR)
    assert image == ImagePart(source=picture.name, media_type="image/png", tool_call_id="0")
    assert news.earlier_pictures == (picture,)
