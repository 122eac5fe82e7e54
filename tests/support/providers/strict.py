"""What OpenAI and Google refuse of a request, for doubles that answer like them; ``caching_provider`` has Anthropic's rules.

* Chat Completions, https://platform.openai.com/docs/api-reference/chat/create: unknown parameters, unknown roles, a ``tool``
  message that no call in front of it asked for, calls that are not answered at once, fields that a message does not have,
  and more tokens, with those kept for the answer, than the window has.
* Responses, https://platform.openai.com/docs/api-reference/responses/create: unknown parameters and items, an output without
  its call, a call without its output, reasoning that nothing of its answer follows
  (https://platform.openai.com/docs/guides/reasoning#keeping-reasoning-items-in-context), and more tokens than the window has
  (https://platform.openai.com/docs/guides/conversation-state#managing-the-context-window).
* Gemini, https://ai.google.dev/api/generate-content and https://ai.google.dev/gemini-api/docs/function-calling: unknown fields,
  unknown roles, a conversation that the model begins, calls and responses that are not as many, or do not follow each other,
  functions beside tools that Google runs, and more tokens than the model takes
  (https://ai.google.dev/gemini-api/docs/long-context, https://ai.google.dev/gemini-api/docs/tokens).

What they refuse of pictures is in ``prompts``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.providers.prompts import Prompt, Refused, gemini_prompt, openai_prompt

CHAT = {
    *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "temperature"),
    *(
        "top_p",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "seed",
        "response_format",
        "reasoning_effort",
        "verbosity",
    ),
    *("prompt_cache_key", "web_search_options", "n", "user", "metadata", "store", "modalities", "logit_bias"),
}
RESPONSES = {
    *(
        "model",
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "stream",
        "temperature",
        "top_p",
    ),
    *("max_output_tokens", "reasoning", "text", "include", "store", "prompt_cache_key", "metadata", "user"),
    *("previous_response_id", "truncation", "background", "service_tier"),
}
GEMINI = {
    *("contents", "tools", "toolConfig", "tool_config", "systemInstruction", "system_instruction", "generationConfig"),
    *("generation_config", "safetySettings", "safety_settings", "cachedContent", "labels"),
}
_ITEMS = {
    "message",
    "function_call",
    "function_call_output",
    "reasoning",
    "custom_tool_call",
    "custom_tool_call_output",
}


_MESSAGE = {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio"}


def _check_known(body: Mapping[str, Any], known: set[str]) -> None:
    if unknown := body.keys() - known:
        raise Refused(f"Unrecognized request argument supplied: {min(unknown)}")


TOO_LONG = "context_length_exceeded"


def check_chat(body: Mapping[str, Any], window: int) -> Prompt:
    """:raises Refused: OpenAI would not take this."""
    _check_known(body, CHAT)
    waiting: set[str] = set()
    for place, message in enumerate(body["messages"]):
        if message["role"] not in ("system", "developer", "user", "assistant", "tool"):
            raise Refused(f"Invalid value: '{message['role']}'. messages[{place}].role")
        if unknown := message.keys() - _MESSAGE:
            raise Refused(f"Unrecognized request argument supplied: messages[{place}].{min(unknown)}")
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                raise Refused("messages with role 'tool' must be a response to a preceding message with 'tool_calls'.")
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            raise Refused(f"An assistant message with 'tool_calls' must be followed by tool messages: {min(waiting)}")
        waiting = {call["id"] for call in message.get("tool_calls", ())}
        if not waiting and message["role"] == "assistant" and message.get("content") is None:
            raise Refused(f"Invalid value for 'content': expected a string, got null. messages[{place}].content")
    if waiting:
        raise Refused(f"An assistant message with 'tool_calls' must be followed by tool messages: {min(waiting)}")
    prompt, answer = openai_prompt(body), body.get("max_completion_tokens") or body.get("max_tokens") or 0
    if prompt.tokens + answer > window:
        asked = f"you requested {prompt.tokens + answer} tokens ({prompt.tokens} in the messages, {answer} in the completion)"
        raise Refused(f"This model's maximum context length is {window} tokens. However, {asked}.", code=TOO_LONG)
    return prompt


def check_responses(body: Mapping[str, Any], window: int) -> Prompt:
    """:raises Refused: OpenAI would not take this."""
    _check_known(body, RESPONSES)
    called: set[str] = set()
    answered: set[str] = set()
    thought = ""
    for place, item in enumerate(body["input"]):
        kind = item.get("type", "message")
        if kind not in _ITEMS:
            raise Refused(f"Invalid value: '{kind}'. input[{place}].type")
        is_of_answer = kind in ("function_call", "custom_tool_call") or item.get("role") == "assistant"
        if thought and not is_of_answer and kind != "reasoning":
            raise Refused(f"Item '{thought}' of type 'reasoning' was provided without its required following item.")
        thought = item["id"] if kind == "reasoning" else ""
        if kind in ("function_call", "custom_tool_call"):
            called.add(item["call_id"])
        elif kind.endswith("_output"):
            if item["call_id"] not in called:
                raise Refused(f"No tool call found for function call output with call_id {item['call_id']}.")
            answered.add(item["call_id"])
    if thought:
        raise Refused(f"Item '{thought}' of type 'reasoning' was provided without its required following item.")
    if called - answered:
        raise Refused(f"No tool output found for function call {min(called - answered)}.")
    prompt = openai_prompt(body)
    if prompt.tokens > window:
        text = "Your input exceeds the context window of this model. Please adjust your input and try again."
        raise Refused(text, code=TOO_LONG)
    return prompt


def check_gemini(body: Mapping[str, Any], model: str, window: int) -> Prompt:
    """:raises Refused: Google would not take this."""
    _check_known(body, GEMINI)
    kinds = {name for tool in body.get("tools") or () for name in tool}
    if kinds & {"functionDeclarations", "function_declarations"} and len(kinds) > 1:
        raise Refused("Tool use with function calling is unsupported")
    contents = body["contents"]
    if not contents or contents[0]["role"] != "user":
        raise Refused("Please ensure that the conversation begins with a user turn.")
    calls = 0
    for place, content in enumerate(contents):
        if content["role"] not in ("user", "model"):
            raise Refused(f"Please use a valid role: user, model. contents[{place}].role")
        responses = sum("functionResponse" in part or "function_response" in part for part in content["parts"])
        if responses != calls:
            raise Refused("Please ensure that the number of function response parts is equal to that of the calls.")
        calls = sum("functionCall" in part or "function_call" in part for part in content["parts"])
        if calls and content["role"] != "model":
            raise Refused(f"Only the model calls functions. contents[{place}]")
    if calls:
        raise Refused("Please ensure that a function call turn is followed by a function response turn.")
    prompt = gemini_prompt(body, model)
    if prompt.tokens > window:
        says = f"The input token count ({prompt.tokens}) exceeds the maximum number of tokens allowed ({window})."
        raise Refused(says)
    return prompt
