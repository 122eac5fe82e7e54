"""The ranking of messages by their words, the words around them, their speaker, their date, and by being questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.search.ranking import (
    GAP,
    Evidence,
    Place,
    Posting,
    Question,
    Ranked,
    Turn,
    choose_terms,
    parse_question,
    rank,
)
from mnesis_core.search.words import words_of

AT = datetime(2026, 5, 7, 12, tzinfo=UTC)
WORDS = ("tulip", "tulips", "planted", "garden", "rain", "yes", "no", "when", "?")


@dataclass(frozen=True, kw_only=True)
class Said:
    text: str
    speaker: str = ""
    at: datetime = AT
    branch: int = 0


def postings_of(question: Question, talk: Sequence[Said]) -> list[Posting]:
    """Return the postings that an index would find."""
    found = []
    for number, term in enumerate(question.terms):
        for seq, said in enumerate(talk, 1):
            words = words_of(said.text)
            if any(
                other.startswith(word.text) if word.prefix else other == word.text
                for word in term.words
                for other in words
            ):
                found.append(Posting(number, seq, seq, len(said.text)))
    return found


def ranked(text: str, *talk: Said | str) -> list[Ranked]:
    said = [one if isinstance(one, Said) else Said(text=one) for one in talk]
    question = parse_question(text, without={name for one in said for name in one.speaker.split()})
    postings = postings_of(question, said)
    counts = [sum(posting.term == term for posting in postings) for term in range(len(question.terms))]
    evidence = Evidence(question, postings, counts, total=len(said))
    return rank(question, evidence, evidence.candidates(), turns_of(said))


def turns_of(talk: Sequence[Said]) -> dict[Place, Turn]:
    return {
        seq: Turn(one.at, one.branch, one.speaker, says=True, is_question=one.text.endswith("?"))
        for seq, one in enumerate(talk, 1)
    }


def best(text: str, *talk: Said | str) -> Place:
    return ranked(text, *talk)[0].place


FILLER = [f"something else {letter}" for letter in "abcdefgh"]


def test_rare_words_say_more_than_common_ones() -> None:
    assert best("garden marigold", *["the garden is green"] * 6, *FILLER, "one marigold") == 15


def test_a_word_of_a_short_text_says_more() -> None:
    assert best("tulips", "tulips " + "and many other things " * 40, *FILLER, "red tulips") == 10


def test_other_forms_of_a_word_count_and_so_does_its_beginning() -> None:
    assert best("When did she plant?", *FILLER, "she planted it", *FILLER) == 9
    assert best("gardener", *FILLER, "the gardening", *FILLER) == 9


def test_what_follows_a_question_with_the_words_is_found_and_the_question_says_less() -> None:
    talk = [*FILLER, "And who waters the tulips?", "My neighbour does, every evening.", *FILLER]
    assert [one.place for one in ranked("Who waters tulips?", *talk)][:2] == [9, 10]
    assert best("tulips", "red tulips?", *FILLER, "red tulips!") == 10


def test_words_do_not_spread_over_a_gap_in_time_or_to_another_branch() -> None:
    def beside(**other: object) -> set[Place]:
        question = "red tulips grow"
        return {one.place for one in ranked(question, *FILLER, "red tulips grow", Said(text="yes", **other), *FILLER)}  # type: ignore[arg-type]

    assert 10 in beside()
    assert 10 in beside(at=AT - GAP)
    assert 10 not in beside(at=AT + GAP + timedelta(seconds=1))
    assert 10 not in beside(branch=1)


def test_the_person_whom_the_question_names_speaks() -> None:
    talk = [Said(text="I love tulips", speaker="ada"), *FILLER, Said(text="I love tulips", speaker="bob byte")]
    assert best("What does Ada love?", *talk) == 1
    assert best("What does Bob love?", *talk) == 10


def test_what_was_said_at_the_date_of_the_question_comes_first() -> None:
    talk = [Said(text="we met", at=datetime(2026, month, 8, tzinfo=UTC)) for month in range(1, 13)]
    assert best("Who met in March?", *talk) == 3
    assert best("Who met on 7 October 2026?", *talk) == 10


def test_terms_are_chosen_from_the_rarest_on_until_they_are_too_many() -> None:
    assert choose_terms([900, 0, 5, 90], most=100) == [2, 3]
    assert choose_terms([900, 800, 850, 0], most=100) == [1]
    assert choose_terms([0, 0, 0, 0], most=100) == []


@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join), max_size=20),
    st.sampled_from(WORDS[:4]),
)
def test_a_text_with_a_word_is_always_found_and_better_than_none(texts: list[str], word: str) -> None:
    found = ranked(word, *texts)
    scores = [one.score for one in found]
    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)
    assert {seq for seq, text in enumerate(texts, 1) if word in text.split()} <= {one.place for one in found}


@given(st.integers(1, 20), st.integers(0, 300))
def test_more_of_the_question_is_never_worse(words: int, others: int) -> None:
    asked = " ".join(f"thing{number}x" for number in range(words))
    talk = [f"{asked} one", *["other"] * (others % 30), f"{asked.split()[0]} one"]
    assert best(asked, *talk) in ((1, len(talk)) if words == 1 else (1,))
