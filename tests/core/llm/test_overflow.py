"""What providers write when a prompt is too long for them, and the numbers that it holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.llm.tokens import Overflow, is_too_long, read_overflow

WORDS: dict[str, tuple[str, Overflow]] = {
    "openai": (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130123 tokens. "
        "Please reduce the length of the messages.",
        Overflow(limit=128_000, prompt=130_123),
    ),
    "openai with functions": (
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens "
        "(8900 in the messages, 100 in the functions). Please reduce the length of the messages or functions.",
        Overflow(limit=8_192, prompt=9_000),
    ),
    "openai with the answer": (
        "This model's maximum context length is 4097 tokens. However, you requested 5000 tokens (3900 in the messages, "
        "100 in the functions, and 1000 in the completion).",
        Overflow(limit=4_097, prompt=4_000, total=5_000),
    ),
    "openai completions": (
        "This model's maximum context length is 4097 tokens, however you requested 5000 tokens (4000 in your prompt; "
        "1000 for the completion).",
        Overflow(limit=4_097, prompt=4_000, total=5_000),
    ),
    "openai responses": (
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        Overflow(),
    ),
    "anthropic": ("prompt is too long: 210000 tokens > 200000 maximum", Overflow(limit=200_000, prompt=210_000)),
    "anthropic with the answer": (
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or "
        "`max_tokens` and try again",
        Overflow(limit=200_000, prompt=190_000),
    ),
    "gemini": (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        Overflow(limit=1_048_576, prompt=1_200_000),
    ),
    "gemini without the count": (
        "The input token count exceeds the maximum number of tokens allowed 1048576.",
        Overflow(limit=1_048_576),
    ),
    "vllm": (
        "This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens. Please reduce "
        "the length of the input messages.",
        Overflow(limit=8_192, prompt=9_000),
    ),
    "vllm with the answer": (
        "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 8192 tokens "
        "and your request has 5000 input tokens (4096 > 8192 - 5000).",
        Overflow(limit=8_192, prompt=5_000),
    ),
    "vllm's engine": (
        "The decoder prompt (length 9000) is longer than the maximum model length of 8192. Make sure that "
        "`max_model_len` is no smaller than the number of text tokens.",
        Overflow(limit=8_192, prompt=9_000),
    ),
    "vllm, newer": (
        "You passed 9000 input tokens and requested 1000 output tokens. However, the model's context length is only 8192 "
        "tokens, resulting in a maximum input length of 7192 tokens.",
        Overflow(limit=8_192, prompt=9_000),
    ),
    "sglang": (
        "Requested token count exceeds the model's maximum context length of 131072 tokens. You requested a total of "
        "140000 tokens: 130000 tokens from the input messages and 10000 tokens for the completion.",
        Overflow(limit=131_072, prompt=130_000, total=140_000),
    ),
    "llama.cpp": (
        "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
        Overflow(limit=8_192, prompt=9_000),
    ),
    "llama.cpp, older": ("the request exceeds the available context size, try increasing it", Overflow()),
    "ollama": ("prompt too long; exceeded max context length by 808 tokens", Overflow(excess=808)),
    "lm studio": (
        "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens, which is not enough.",
        Overflow(limit=4_096, prompt=9_000),
    ),
    "mistral": (
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        Overflow(limit=32_768, prompt=40_000),
    ),
    "xai": (
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        Overflow(limit=131_072, prompt=537_812),
    ),
    "openrouter": (
        "This endpoint's maximum context length is 8192 tokens. However, you requested about 9500 tokens (8000 of text "
        "input, 500 of tool input, 1000 in the output).",
        Overflow(limit=8_192, prompt=8_500, total=9_500),
    ),
    "moonshot": (
        "Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)",
        Overflow(limit=8_192, total=9_000),
    ),
    "together": (
        "The input (516368 tokens) is longer than the model's context length (262144 tokens).",
        Overflow(limit=262_144, prompt=516_368),
    ),
    "text generation inference": (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and "
        "200 `max_new_tokens`",
        Overflow(limit=4_096, prompt=4_000),
    ),
    "text generation inference, prompt alone": (
        "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000",
        Overflow(limit=4_095, prompt=5_000),
    ),
    "cohere": (
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try a shorter prompt.",
        Overflow(limit=4_081, prompt=5_000),
    ),
    "bedrock": ("Input is too long for requested model.", Overflow()),
    "groq": ("Please reduce the length of the messages or completion.", Overflow()),
    "dashscope": ("Range of input length should be [1, 129024]", Overflow(limit=129_024)),
    "with commas": (
        "prompt is too long: 1,200,000 tokens > 1,000,000 maximum",
        Overflow(limit=1_000_000, prompt=1_200_000),
    ),
}


@pytest.mark.parametrize("provider", WORDS)
def test_what_a_provider_says_of_a_prompt_that_is_too_long_is_read_as_numbers(provider: str) -> None:
    words, overflow = WORDS[provider]
    assert is_too_long(words)
    assert read_overflow(words) == overflow


@pytest.mark.parametrize(
    "words",
    [
        "temperature must be below 2",
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
        "Request too large for model in organization on tokens per minute (TPM): Limit 6000, Requested 9000.",
        "Invalid 'tools[0].name': string too long.",
    ],
)
def test_other_refusals_are_not_taken_for_it(words: str) -> None:
    assert not is_too_long(words)


@pytest.mark.parametrize(
    ("overflow", "counted"),
    [
        (Overflow(), None),
        (Overflow(limit=8_000), None),
        (Overflow(prompt=9_000, total=12_000), 9_000),
        (Overflow(total=9_000), 8_000),
        (Overflow(total=900), None),
        (Overflow(excess=500), 32_500),
        (Overflow(excess=500, limit=8_000), 8_500),
    ],
)
def test_the_prompt_s_own_tokens_follow_from_what_is_said(overflow: Overflow, counted: int | None) -> None:
    assert overflow.counted(window=32_000, output=1_000) == counted


@given(st.text(), st.integers(min_value=-(10**30), max_value=10**30))
def test_any_words_can_be_read(words: str, number: int) -> None:
    for text in (words, f"prompt is too long: {number} tokens > {number} maximum {words}"):
        overflow = read_overflow(text)
        assert all(count is None or 0 < count <= 2**53 for count in (overflow.limit, overflow.prompt))
