"""What a provider says when it refuses a prompt as too long, in numbers."""

from __future__ import annotations

import re

from mnesis_core.values import dataclass

LARGEST_COUNT = 2**53
_TOO_LONG = re.compile(
    r"context[ _](?:length|window|size|limit)|maximum context|maximum (?:supported )?(?:prompt|input|model|sequence) length"
    r"|(?:prompt|input) (?:is )?too (?:long|large)|too many (?:input )?tokens|input token count|model token limit"
    r"|max_new_tokens|must have less than \d+ tokens|input length should be|reduce the length of the (?:messages|input|prompt)",
    re.IGNORECASE,
)


def _all(*patterns: str) -> tuple[re.Pattern[str], ...]:
    """Patterns in which ``#`` is a number; where several are found, the first of them counts."""
    return tuple(re.compile(pattern.replace("#", r"(\d[\d,]*)"), re.IGNORECASE) for pattern in patterns)


# Each is what one provider or server writes; the tests name them.
_LIMITS = _all(
    r"context length (?:is only|of only|is|of) \(?#",
    r"context length \(#",
    r"context limit: [\d,]+ \+ [\d,]+ > #",
    r"context size (?:is |\()#",
    r"with # maximum context",
    r"> # maximum",
    r"maximum number of tokens allowed \(?#",
    r"model token limit: #",
    r"maximum (?:supported )?(?:prompt|input|model|sequence) length (?:is just|is|of) #",
    r"max_new_tokens\W+ must be <= #",
    r"must have less than # tokens",
    r"prompt cannot exceed #",
    r"input length should be \[\d+, ?#\]",
)
_PROMPTS = _all(
    r"messages resulted in #",
    r"\(# (?:in (?:the messages|your prompt)|of text input)(?:, # (?:in the functions|of tool input))?",
    r"# tokens from the input",
    r"(?:request has|request contains|you passed|prompt contains|prompt has) #",
    r"prompt is too long: #",
    r"context limit: # \+",
    r"input token count (?:of |is )?\(?#",
    r"request \(# tokens\)",
    r"\(length #\)",
    r"provided prompt is # tokens",
    r"input (?:length )?\(#(?: tokens\))?",
    r"given: #",
    r"received #",
    r"keep the first # tokens",
)
_TOTALS = _all(r"you requested (?:about |a total of )?#", r"\(requested: #")
_EXCESSES = _all(r"exceeded max(?:imum)? context length by #")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """The numbers of a refusal, in tokens; ``None``: it does not say."""

    limit: int | None = None
    """What the model takes."""
    prompt: int | None = None
    """What the prompt has."""
    total: int | None = None
    """What the prompt and the answer that was asked for have together."""
    excess: int | None = None
    """By how much the prompt is too long."""

    def counted(self, *, window: int, output: int) -> int | None:
        """Tokens of the prompt by the provider's count.

        :param window: what the model takes, where the refusal does not say it
        :param output: what the call reserved for the answer
        """
        if self.prompt is not None:
            return self.prompt
        if self.total is not None:
            return self.total - output if self.total > output else None
        return None if self.excess is None else (self.limit or window) + self.excess


def is_too_long(words: str) -> bool:
    """Whether these words of a provider refuse a prompt as too long."""
    return _TOO_LONG.search(words) is not None or any(pattern.search(words) for pattern in _EXCESSES)


def read_overflow(words: str) -> Overflow:
    """The numbers in a provider's words. These may come from anywhere, so what they say is to be checked."""
    return Overflow(
        limit=_first(_LIMITS, words),
        prompt=_first(_PROMPTS, words),
        total=_first(_TOTALS, words),
        excess=_first(_EXCESSES, words),
    )


def _first(patterns: tuple[re.Pattern[str], ...], words: str) -> int | None:
    """The number that the first of these finds; the sum, where one finds several."""
    found = next((match for pattern in patterns if (match := pattern.search(words))), None)
    if found is None:
        return None
    count = sum(int(digits.replace(",", "")[:17]) for digits in found.groups(default="0"))
    return count if 0 < count <= LARGEST_COUNT else None
