"""``manage.py model add|list|check``."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, ArgumentTypeError
from dataclasses import asdict, replace
from typing import Any

from django.core.management.base import CommandError

from agents_app.endpoints.terminal import EndpointCommand
from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.caching import LIFETIMES
from mnesis_core.llm.interface import LimitSource, ModelSpec, shown_prices
from sessions_app.conf import list_models
from sessions_app.llm import model_store
from sessions_app.llm.model_store import EnteredPrices, check_model, settle_model

PRICES = {
    "input": "prompt",
    "output": "answer",
    "cache_read": "cached prompt",
    "cache_write": "newly cached prompt",
    "cache_write_1h": "one-hour cached prompt",
}
# What this command calls a value, where the name is another.
OPTION_OF = {
    "context_window": "context",
    "max_output_tokens": "max-output",
    "timeout_seconds": "timeout",
    "total_timeout_seconds": "total-timeout",
}
YES_NO = {"yes": True, "no": False}
SHOWN = (
    *("alias", "litellm_model", "api_base", "context_window", "context_window_source"),
    *(
        "max_output_tokens",
        "max_output_source",
        "takes_pictures",
        "takes_documents",
        "takes_audio",
        "through_gateway",
        "prices",
        "prices_source",
        "fallbacks",
    ),
    *("parameters", "cache"),
)


class Command(EndpointCommand):
    help = "The models that sessions may use: any provider that litellm knows, or any OpenAI-compatible server."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        add = verbs.add_parser("add", help="add a model, or replace the one with this alias")
        add.add_argument("--alias", required=True, help="the name people see")
        add.add_argument("--litellm", required=True, help="its name in litellm, such as openai/gpt-4o")
        add.add_argument("--api-base", default="", help="the address of an OpenAI-compatible server, with /v1")
        add.add_argument("--api-key-env", default="", help="the environment variable that holds the key")
        add.add_argument("--context", type=int, help="tokens in its window (default: from litellm)")
        add.add_argument("--max-output", type=int, help="the most tokens of an answer (default: from litellm)")
        add.add_argument("--pictures", choices=YES_NO, help="whether it takes pictures (default: from litellm)")
        add.add_argument("--pdfs", choices=YES_NO, help="whether it takes PDFs (default: from litellm)")
        add.add_argument("--audio", choices=YES_NO, help="whether it takes audio (default: from litellm)")
        add.add_argument(
            "--fallback",
            action="append",
            default=[],
            help="a model to ask when this one returns nothing; repeatable",
        )
        add.add_argument(
            "--parameters",
            type=_object,
            default={},
            help='default parameters, as JSON: {"temperature": 0.2, "effort": "low"}',
        )
        add.add_argument(
            "--cache",
            choices=LIFETIMES,
            default=LIFETIMES[1],
            help="how long Claude caches prompts for the next call (5m)",
        )
        add.add_argument("--gateway", action="store_true", help="pass requests at /v1 for it to its provider unchanged")
        add.add_argument("--timeout", type=float, default=120.0, help="longest silence in a stream, in seconds (120)")
        add.add_argument(
            "--total-timeout",
            type=float,
            default=1800.0,
            help="longest whole call, retries included, in seconds (1800)",
        )
        for name, tokens in PRICES.items():
            option = f"--{name.replace('_', '-')}-price"
            add.add_argument(option, type=float, help=f"the price of a million {tokens} tokens (default: from litellm)")
        listing = verbs.add_parser("list", help="list the models")
        listing.add_argument("--json", action="store_true", dest="as_json", help="print JSON, errors too")
        check = verbs.add_parser("check", help="ask a model one short question")
        check.add_argument("alias")

    def do_add(self, options: dict[str, Any]) -> None:
        try:
            spec = settle_model(
                alias=options["alias"],
                litellm_model=options["litellm"],
                api_base=options["api_base"],
                context_window=options["context"],
                max_output_tokens=options["max_output"],
                takes_pictures=YES_NO.get(options["pictures"]),
                takes_documents=YES_NO.get(options["pdfs"]),
                takes_audio=YES_NO.get(options["audio"]),
                through_gateway=options["gateway"],
                prices=EnteredPrices(**{name: options[f"{name}_price"] for name in PRICES}),
                timeout_seconds=options["timeout"],
                total_timeout_seconds=options["total_timeout"],
                fallbacks=options["fallback"],
                parameters=options["parameters"],
                cache=options["cache"],
            )
        except InvalidRequest as error:
            name = str(error.details["field"]).partition(".")[0]
            option = f"--{OPTION_OF.get(name, name.replace('_', '-'))}"
            raise CommandError(f"{option}: {error.message}", returncode=error.exit_status) from None
        model_store.put_model(replace(spec, entered_on_host=True), api_key_env=options["api_key_env"])
        self.stdout.write(self.readable(_line(spec)))
        if spec.context_window_source is LimitSource.DEFAULT:
            self.stdout.write(
                f"Its window is unknown, so {spec.context_window:,} is assumed. Use --context to change it."
            )
        for alias in set(spec.fallbacks) - {known.alias for known in list_models(user_id=None)}:
            self.stdout.write(f"Note: no model is called {alias!r} yet. It is skipped until then.")
        if options["api_key_env"] and not os.environ.get(options["api_key_env"]):
            self.stdout.write(
                f"Note: {options['api_key_env']} is not set here; the server needs it when it calls the model."
            )

    def do_list(self, options: dict[str, Any]) -> None:
        models = list_models(user_id=None)
        self.show(
            lambda: [
                {name: asdict(spec)[name] for name in SHOWN} | {"parameters": spec.parameters.as_dict()}
                for spec in models
            ],
            lambda: map(_line, models),
            as_json=options["as_json"],
        )

    def do_check(self, options: dict[str, Any]) -> None:
        result, error = check_model(options["alias"])
        if error is not None:
            raise error
        usage = f"{result.input_tokens} + {result.output_tokens} tokens ({result.usage_source})"
        self.stdout.write(f"{options['alias']} answers: {result.answer!r}, {result.finish_reason}, {usage}")


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ArgumentTypeError("must be a JSON object") from None
    if not isinstance(value, dict):
        raise ArgumentTypeError("must be a JSON object")
    return value


def _line(spec: ModelSpec) -> str:
    place = f" at {spec.api_base}" if spec.api_base else ""
    others = f", else {', '.join(spec.fallbacks)}" if spec.fallbacks else ""
    asked = f", asked with {json.dumps(spec.parameters.as_dict())}" if spec.parameters.as_dict() else ""
    return (
        f"{spec.alias:20} {spec.litellm_model}{place}, window {spec.context_window:,} ({spec.context_window_source}), "
        f"answer {spec.max_output_tokens:,} ({spec.max_output_source}), "
        f"prices {shown_prices(spec)} ({spec.prices_source}){others}{asked}"
    )
