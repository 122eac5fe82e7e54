"""What the demo model says of itself, and prose on demand."""

from __future__ import annotations

WHAT_TO_TRY = """\
- **Tell me a few things** ("My cat is called Tom. The launch is on 4 May."), then ask **"What did I say about the launch?"**
- Ask **"Summarise our conversation"**, **"What was my first message?"** or **"How many messages do you see?"**
- Ask for a sum, such as **"What is 12 * (7 + 1)?"**
- Say **"Show me markdown"** to see what answers can look like.
- Write a lot: when the context fills up, older messages become a summary. Nothing is lost, and you can look into it."""

GREETING = f"""\
Hello! I am the **demo model** of Mnesis. I run inside this server: no key, no network, no cost.

I am no large language model. I find things in our conversation and repeat them honestly, which is enough to see how \
sessions, context and memory work here. Things to try:

{WHAT_TO_TRY}"""

ABOUT = f"""\
I am the **demo model** of Mnesis, a small offline program that stands in until you choose a real model. I remember \
what is in this conversation, look it up, do sums, and summarise.

{WHAT_TO_TRY}

For testing there are commands: `!slow 80` (milliseconds per word), `!think`, `!long 500` (words), \
`!tool NAME {{"argument": 1}}`, and `!fail 401`, `429`, `500`, `cut` or `empty`."""

MARKDOWN = """\
Here is some of it.

## A list

1. Plain text, **bold**, *italic* and `code`.
2. A [link](https://commonmark.org/help/) that you may follow.
   - Lists may hold lists.

## Code

```python
def fibonacci(count: int) -> list[int]:
    numbers = [0, 1]
    while len(numbers) < count:
        numbers.append(numbers[-1] + numbers[-2])
    return numbers[:count]
```

## A table

| Level | Who writes the summary | Can it fail? |
|---|---|---|
| 1 | a model, with structure | yes, then level 2 |
| 2 | a model, in short points | yes, then level 3 |
| 3 | plain code | no |

> What was said stays on record. Only what a model is shown changes."""

_OPENINGS = (
    "In the morning",
    "After the rain",
    "Near the harbour",
    "By lamplight",
    "On most days",
    "Once a year",
    "Now and then",
)
_SUBJECTS = (
    "the old archivist", "a patient clerk", "the night train", "every careful gardener", "the harbour master",
    "a travelling printer", "the youngest reader", "some quiet engineer", "the lighthouse keeper", "a retired judge",
    "the choir",
)  # fmt: skip
_VERBS = (
    "writes down",
    "remembers",
    "sorts",
    "carries",
    "repairs",
    "measures",
    "describes",
    "forgives",
    "keeps",
    "questions",
)
_OBJECTS = (
    "every letter that arrived", "the names of the ships", "a box of maps", "three kinds of silence",
    "the long way home", "the price of salt", "what the others left out", "an unfinished song",
    "the weather of last spring", "a key without a door", "the first draft", "two small rivers", "the count of steps",
)  # fmt: skip
_ENDINGS = (
    "without haste",
    "for the record",
    "with a smile",
    "as agreed",
    "twice",
    "in plain words",
    "before supper",
    "with care",
)


def prose(words: int) -> str:
    """So many words of prose, the same for the same number, with hardly a sentence that repeats."""
    written: list[str] = []
    sentence = 0
    while len(written) < words:
        written += _sentence(sentence).split()
        sentence += 1
        if sentence % 5 == 0:
            written[-1] += "\n\n"
    text = " ".join(written[:words]).replace("\n\n ", "\n\n").strip()
    return text if text.endswith(".") else text + "."


def _sentence(index: int) -> str:
    # The lists' lengths share no factor that matters, so it takes thousands of sentences to come round.
    parts = (
        _OPENINGS[index % 7],
        _SUBJECTS[index * 3 % 11],
        _VERBS[index * 7 % 10],
        _OBJECTS[index * 5 % 13],
        _ENDINGS[(index * 3 + index // 8) % 8],
    )
    # The page makes every sentence one that can be searched for.
    return f"{parts[0]}, on page {index + 1}, {parts[1]} {parts[2]} {parts[3]}, {parts[4]}."
