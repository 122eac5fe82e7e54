"""What an evaluation is asked for, as JSON between the command and the process that measures, and what it may cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mnesis_core.compaction.evaluation.measures import Policy, Told
from mnesis_core.llm.interface import LimitSource, ModelSpec, Prices, Usage, cost_micros
from mnesis_core.llm.parameters import read_parameters
from mnesis_core.spending import Spent, highest_of
from sessions_app.conf import site_config
from sessions_app.database.tables import fetch

_OF_MODELS = ("models", "helpers")
READINGS = {"mnesis": 3, "rolling": 2}
"""How often models read the whole conversation: Mnesis for summaries of it, summaries of these, and facts."""
SUMMARY_SHARE = 4
"""A summary has about one token for this many that it stands for."""
ANSWER_TOKENS = 300
_SIZE = (
    "SELECT (SELECT COUNT(*) FROM messages WHERE session_id = %s), COALESCE(SUM(p.token_estimate + COALESCE(p.output_token_estimate, 0)), 0)"
    " FROM message_parts p WHERE p.session_id = %s"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedModel:
    spec: ModelSpec
    api_key_env: str = ""  # the environment variable with its key, which both processes have
    sealed_key: str = ""  # a key that was entered on a page; both processes have the secret

    @property
    def is_demo(self) -> bool:
        return self.spec.litellm_model.startswith("demo/")

    def as_dict(self) -> dict[str, Any]:
        spec = asdict(self.spec)
        # A key is passed on sealed or not at all, and the host's lists are the same for both processes.
        del spec["api_key"], spec["listed_addresses"]
        return {"spec": spec, "api_key_env": self.api_key_env, "sealed_key": self.sealed_key}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedSession:
    id: str
    file: str  # its export, with those of its parents


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    files: tuple[str, ...]
    sessions: tuple[AskedSession, ...]
    models: tuple[AskedModel, ...]
    helpers: tuple[AskedModel, ...]  # those that the site's configuration names, for summaries and for searches
    windows: tuple[int, ...]
    policies: tuple[Policy, ...]
    plant: int
    seed: int
    questions: int  # of a conversation's own questions, at most so many
    conversations: int  # of a file, at most so many
    answers: bool  # whether the models are asked the questions

    def as_dict(self) -> dict[str, Any]:
        models = {name: [model.as_dict() for model in getattr(self, name)] for name in _OF_MODELS}
        return asdict(self) | models

    def helper(self, alias: str) -> AskedModel | None:
        return next((model for model in self.helpers if model.spec.alias == alias), None)


def read_job(values: Mapping[str, Any]) -> Job:
    """Return the job that the other process wrote with ``as_dict``."""
    lists = {name: tuple(values[name]) for name in ("files", "windows", "policies")}
    sessions = tuple(AskedSession(**one) for one in values["sessions"])
    models = {name: tuple(map(_read_model, values[name])) for name in _OF_MODELS}
    return Job(**(dict(values) | lists | {"sessions": sessions} | models))


def _read_model(values: Mapping[str, Any]) -> AskedModel:
    spec = dict(values["spec"])
    sources = {name: LimitSource(value) for name, value in spec.items() if name.endswith("_source")}
    made = {"prices": Prices(**spec["prices"]), "parameters": read_parameters(spec["parameters"])}
    read = ModelSpec(**(spec | sources | made | {"fallbacks": tuple(spec["fallbacks"])}))
    return AskedModel(**(dict(values) | {"spec": read}))


# What an evaluation may cost, before anything is asked: rather too much than too little.


def estimate_micros(job: Job, conversations: Sequence[Told]) -> int | None:
    """Return millionths of the currency unit, or None if the price of a model is not known."""
    costs = [cost_micros(spec, usage) for spec, usage in _usages(job, conversations)]
    return None if None in costs else sum(cost or 0 for cost in costs)


def estimate_spent(job: Job, conversations: Sequence[Told]) -> Spent:
    """Return what counts towards a person's limits before the evaluation has ended."""
    tokens = sum(usage.input_tokens + usage.output_tokens for _, usage in _usages(job, conversations))
    return highest_of(tokens, estimate_micros(job, conversations))


def tell_of(session_id: str) -> Told:
    """Return how large a session is, without reading its messages."""
    [(messages, tokens)] = fetch(_SIZE, [session_id, session_id])
    return Told(name=session_id, messages=messages, tokens=tokens, questions=())


def _usages(job: Job, conversations: Sequence[Told]) -> Iterator[tuple[ModelSpec, Usage]]:
    summariser = job.helper(site_config().compaction.model)
    readings = sum(READINGS.get(policy, 0) for policy in job.policies)
    for told in conversations:
        summarised = sum(told.tokens > window // 2 for window in job.windows) * told.tokens * readings
        asked = sum(bool(question.answer) for question in told.questions) * len(job.policies) if job.answers else 0
        prompts = asked * sum(min(window, told.tokens) for window in job.windows)
        for model in job.models:
            summaries = Usage(input_tokens=summarised, output_tokens=summarised // SUMMARY_SHARE)
            yield (summariser or model).spec, summaries
            longest = min(ANSWER_TOKENS, model.spec.max_output_tokens)
            yield model.spec, Usage(input_tokens=prompts, output_tokens=asked * len(job.windows) * longest)
        # Each message is read for its vector, and each question with what was found for it.
        read = Usage(input_tokens=len(job.models) * len(job.windows) * told.tokens, output_tokens=0)
        yield from ((model.spec, read) for model in job.helpers if model is not summariser)
