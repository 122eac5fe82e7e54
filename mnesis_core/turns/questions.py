"""Questions that a model asks a person: what one may hold, and the answers as the model reads them."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from mnesis_core.errors import InvalidRequest, gettext_noop

ASK_USER = "ask_user"  # The tool, whose result is a person's answer: no process runs it.
MOST_QUESTIONS, MOST_OPTIONS = 10, 20
NO_ANSWER = "The user was asked and chose not to answer. Go on without it, and say what you assume."
UNANSWERED = "(no answer)"

Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000)]
Option = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class Question(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    question: Words
    options: Annotated[tuple[Option, ...], Field(max_length=MOST_OPTIONS)] = ()
    several: bool = Field(default=False, description="Whether more than one option may be chosen.")

    def chosen(self, line: str) -> list[str]:
        """Return what a person typed: the options of these numbers, or the words themselves."""
        numbered = {str(number): option for number, option in enumerate(self.options, 1)}
        numbers = line.replace(",", " ").split()
        if numbers and numbered.keys() >= set(numbers):
            return [numbered[number] for number in numbers]
        return [line] if line.strip() else []


Questions = Annotated[tuple[Question, ...], Field(min_length=1, max_length=MOST_QUESTIONS)]


class _Arguments(BaseModel):
    questions: Questions


def read_questions(arguments: str) -> tuple[Question, ...]:
    """Return the questions of a call, from its arguments as JSON; none if they are not valid."""
    try:
        return _Arguments.model_validate_json(arguments).questions
    except ValidationError:
        return ()


def answers_as_text(questions: Sequence[Question], answers: Sequence[Sequence[str]]) -> str:
    """Return what the model reads: each question, and below it the chosen options and the person's own words.

    :param answers: for each question its answers, none for a question that is left out
    :raises InvalidRequest: there is not one entry for each question, or several options are chosen where one may be.
    """
    if len(answers) != len(questions):
        raise InvalidRequest(
            gettext_noop("answers has %(given)s entries for %(asked)s questions"),
            {"given": len(answers), "asked": len(questions)},
            field="answers",
        )
    said = [[answer.strip() for answer in given if answer.strip()] for given in answers]
    for asked, given in zip(questions, said, strict=True):
        if not asked.several and len(set(given) & set(asked.options)) > 1:
            raise InvalidRequest(
                gettext_noop("choose one option for “%(question)s”"), {"question": asked.question}, field="answers"
            )
    if not any(said):
        return NO_ANSWER
    return "\n\n".join(
        "\n".join([asked.question, *(indent(answer, "> ", lambda line: True) for answer in given or [UNANSWERED])])
        for asked, given in zip(questions, said, strict=True)
    )
