"""Plants facts in a conversation whose answers cannot be guessed, and stand nowhere else: codes of invented things.

The same seed plants the same facts. One fact in five changes later: what was said last counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from mnesis_core.compaction.evaluation.values import Conversation, Question
from mnesis_core.errors import InvalidRequest
from mnesis_core.messages import TextPart
from mnesis_core.transcripts.values import TranscriptMessage

ONE_CHANGES_IN = 5
_NOUNS = (
    *("harbour code", "gate code", "locker number", "call sign", "customs seal", "vault code", "radio channel"),
    *("berth number", "pilot licence", "warehouse key", "tide table", "ferry ticket", "lighthouse signal"),
)
_PLACES = (
    *("Lisbon", "Bergen", "Trieste", "Galway", "Tallinn", "Valencia", "Odense", "Split", "Reykjavik", "Naples"),
    *("Gdansk", "Porto", "Marseille", "Aarhus", "Riga", "Bari", "Cork", "Turku", "Palermo", "Nantes"),
    *("Oslo", "Malmo", "Varna", "Cadiz", "Genoa", "Rostock", "Hull", "Bilbao", "Corfu", "Haifa"),
)
MOST_FACTS = len(_NOUNS) * len(_PLACES)
_DIGITS, _LETTERS = "23456789", "ABCDEFGHJKLMNPQRSTUVWXYZ"  # without those that are mistaken for others


def plant(conversation: Conversation, *, count: int, seed: int) -> Conversation:
    """Return the conversation with ``count`` facts spread over it, and a question for each before its own questions.

    A fact is a paragraph of its own at the end of a message that says something.

    :raises InvalidRequest: no message has a text, or there are not so many facts.
    """
    if not 0 <= count <= MOST_FACTS:
        raise InvalidRequest(f"the number of planted facts must lie between 0 and {MOST_FACTS}", field="plant")
    messages = list(conversation.transcript.messages)
    spots = [index for index, message in enumerate(messages) if _last_text(message) is not None]
    if count and not spots:
        raise InvalidRequest(f"{conversation.name} has no message with a text, so no fact can be planted.")
    random = Random(f"{seed} {conversation.transcript.external_id}")  # noqa: S311 - it must be repeatable, not secret
    codes = _codes(random, "\n".join(map(repr, messages)).casefold())
    subjects = random.sample([(noun, place) for place in _PLACES for noun in _NOUNS], count)
    paragraphs: dict[int, list[str]] = {}
    questions = []
    for number, (noun, place) in enumerate(subjects):
        at = min(len(spots) - 1, int(len(spots) * (number + random.random()) / count))
        code, outdated, subject = next(codes), "", f"{noun} of {place}"
        changes = number % ONE_CHANGES_IN == ONE_CHANGES_IN - 1 and at > 0
        if changes:
            outdated = next(codes)
            paragraphs.setdefault(spots[random.randrange(at)], []).append(f"The {subject} is {outdated}.")
        said = f"The {subject} is {'now ' if changes else ''}{code}."
        paragraphs.setdefault(spots[at], []).append(said)
        questions.append(
            Question(
                kind="changed" if changes else "planted",
                text=f"What is the {subject}?",
                answer=code,
                outdated=outdated,
                evidence=(spots[at] + 1,),
                place=spots[at] / len(messages),
            )
        )
    transcript = conversation.transcript
    grown = iter([_with(message, paragraphs.get(index, [])) for index, message in enumerate(messages)])
    turns = tuple(replace(turn, messages=tuple(next(grown) for _ in turn.messages)) for turn in transcript.turns)
    transcript = replace(transcript, turns=turns)
    return replace(conversation, transcript=transcript, questions=(*questions, *conversation.questions))


def _codes(random: Random, said: str) -> Iterator[str]:
    """Yield codes such as ``7F-2K5``, each once and none that ``said``, folded, holds."""
    given: set[str] = set()
    while True:
        pairs = [random.choice(_DIGITS) + random.choice(_LETTERS) for _ in range(2)]
        code = f"{'-'.join(pairs)}{random.choice(_DIGITS)}"
        if code not in given and code.casefold() not in said:
            given.add(code)
            yield code


def _last_text(message: TranscriptMessage) -> tuple[int, TextPart] | None:
    """Return the last text that a person or a model said in a message, and its place among the parts."""
    if message.role == "system" or message.is_summary:
        return None
    parts = ((place, part) for place, part in reversed(list(enumerate(message.parts))) if isinstance(part, TextPart))
    return next(((place, part) for place, part in parts if part.text.strip()), None)


def _with(message: TranscriptMessage, paragraphs: list[str]) -> TranscriptMessage:
    found = _last_text(message)
    if not paragraphs or found is None:
        return message
    place, part = found
    grown = replace(part, text="\n\n".join([part.text, *paragraphs]))
    return replace(message, parts=(*message.parts[:place], grown, *message.parts[place + 1 :]))
