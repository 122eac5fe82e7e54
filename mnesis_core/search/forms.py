"""The forms of a word: what else says the same thing, such as ``paints`` and ``painted`` for ``paint``.

The index holds words as they were said. A question asks for all forms of its words, so nothing has to be known of a text
when it is written, and a better list helps with old texts too. The endings are English ones; words of other languages
are also found by their beginnings (``mnesis_core.search.questions``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

_FUNCTION_WORDS = """
a about an and any are as at be been being by can could did do does doing during for from had has have having he her
hers him his how i if in into is it its may me might my no not of on or our ours s she should so some t than that the
their theirs them then there these they this those to us was we were what when where which who whom whose why will with
would you your yours
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Words that are in a question because it is one. They say little about its answer."""

_IRREGULAR = """
become became; begin began begun; bend bent; bite bit bitten; blow blew blown; break broke broken; bring brought;
build built; burn burnt; buy bought; catch caught; child children; choose chose chosen; come came; deal dealt; dig dug;
draw drew drawn; dream dreamt; drink drank drunk; drive drove driven; eat ate eaten; fall fell fallen; feed fed;
feel felt; fight fought; find found; fly flew flown; foot feet; forget forgot forgotten; forgive forgave forgiven;
freeze froze frozen; get got gotten; give gave given; go goes going went gone; grow grew grown; hang hung; hear heard;
hide hid hidden; hold held; keep kept; know knew known; lead led; learn learnt; leave left; lend lent; life lives;
light lit; lose lost; make made; man men; mean meant; meet met; mouse mice; pay paid; person people; ride rode ridden;
ring rang rung; rise rose risen; run ran; say said; see saw seen; seek sought; sell sold; send sent; shake shook shaken;
shoot shot; show shown; sing sang sung; sink sank sunk; sit sat; sleep slept; speak spoke spoken; spend spent;
stand stood; steal stole stolen; stick stuck; strike struck; swear swore sworn; sweep swept; swim swam swum;
take took taken; teach taught; tear tore torn; tell told; think thought; throw threw thrown; tooth teeth;
understand understood; use used using; wake woke woken; wear wore worn; wife wives; win won; woman women; write wrote written
"""
_FAMILIES = [family.split() for family in _IRREGULAR.split(";")]
_BASE = {form: family[0] for family in _FAMILIES for form in family}

_VOWELS = frozenset("aeiouy")
_ENDINGS = ("ingly", "edly", "ings", "ing", "ied", "ers", "ed", "er", "ly")
SHORTEST = 3  # letters that an ending leaves


def stem_of(word: str) -> str:
    """Return what the regular forms of an English word have in common; a word of four letters or fewer may be its own."""
    word = _BASE.get(word, word)
    if len(word) <= SHORTEST or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = f"{word[:-3]}y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    ending = next((ending for ending in _ENDINGS if word.endswith(ending) and _may_end(word, ending)), "")
    if ending:
        word = word[: -len(ending)] + ("y" if ending == "ied" else "")
        if len(word) > SHORTEST and word[-1] == word[-2] and word[-1] not in "lsz":
            word = word[:-1]
    if word.endswith("e") and len(word) > SHORTEST:
        word = word[:-1]
    return f"{word[:-1]}i" if word.endswith("y") and len(word) > SHORTEST else word


def _may_end(word: str, ending: str) -> bool:
    rest = word[: -len(ending)]
    # A family is nothing that is done in the way of a "fami".
    return len(rest) >= SHORTEST and not _VOWELS.isdisjoint(rest) and not (ending == "ly" and rest.endswith("i"))


_IRREGULAR_FORMS = {stem_of(family[0]): family for family in _FAMILIES}


@lru_cache(maxsize=4_096)
def forms_of(word: str) -> tuple[str, ...]:
    """Return the word first, then its other forms, irregular ones too. Some that nobody uses are among them."""
    stem = stem_of(word)
    if len(stem) < SHORTEST and word not in _BASE:
        return (word,)
    regular: Iterable[str] = _regular(stem) if stem.isascii() and stem.isalpha() else ()
    # A herring is not hers.
    regular = (form for form in regular if form not in FUNCTION_WORDS and stem_of(form) == stem)
    return tuple(dict.fromkeys([word, *_IRREGULAR_FORMS.get(stem, ()), *regular]))


def _regular(stem: str) -> Iterator[str]:
    if stem.endswith("i"):
        yield from (stem[:-1] + ending for ending in ("y", "ies", "ied", "ier", "ying"))
        return
    yield from (stem + ending for ending in ("", "s", "es", "ed", "ing", "ings", "er", "ers", "ly"))
    yield from (stem + ending for ending in ("e", "ely"))
    if stem[-1] not in _VOWELS and stem[-2:-1] and stem[-2] in _VOWELS:
        yield from (stem + stem[-1] + ending for ending in ("ed", "ing", "er", "ers"))
