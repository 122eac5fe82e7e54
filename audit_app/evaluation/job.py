"""What an evaluation is asked for, as JSON: between the command and the process that measures in a database of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mnesis_core.compaction.evaluation.values import Policy
from mnesis_core.llm.interface import LimitSource, ModelSpec, Prices
from mnesis_core.llm.parameters import read_parameters

_OF_MODELS = ("models", "helpers")


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
