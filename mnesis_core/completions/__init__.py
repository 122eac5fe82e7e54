"""OpenAI's Chat Completions as decisions: what a request says, what of it is new to the record, how an answer reads."""

from mnesis_core.completions.answer import (
    Answered,
    Head,
    finish_reason,
    read_completion,
    read_end,
    read_error,
    read_text,
)
from mnesis_core.completions.news import Known, News, find_news, joined, known_of
from mnesis_core.completions.request import CompletionRequest, Said, check_supported, text_of_content, unused
from mnesis_core.completions.speech import Speech

__all__ = [
    "Answered",
    "CompletionRequest",
    "Head",
    "Known",
    "News",
    "Said",
    "Speech",
    "check_supported",
    "find_news",
    "finish_reason",
    "joined",
    "known_of",
    "read_completion",
    "read_end",
    "read_error",
    "read_text",
    "text_of_content",
    "unused",
]
