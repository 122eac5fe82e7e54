"""``manage.py model add|list|check``."""

from __future__ import annotations

import asyncio
import json
import os
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from mnesis_core.errors import MnesisError
from mnesis_core.llm import ModelSpec, Request, complete
from mnesis_core.providers.litellm_ import model_metadata
from sessions_app import store
from sessions_app.conf import get_model, list_models

UNKNOWN_WINDOW, UNKNOWN_OUTPUT = 32_000, 4_096
"""Assumed, and said so, for a model that litellm does not know and for which nothing was given."""


class Command(BaseCommand):
    """Add, list and check models."""

    help = "The models that sessions may use: any provider that litellm knows, or any OpenAI-compatible server."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The three verbs."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        add = verbs.add_parser("add", help="add a model, or replace the one with this alias")
        add.add_argument("--alias", required=True, help="the name people see")
        add.add_argument("--litellm", required=True, help="what litellm calls it, such as openai/gpt-4o")
        add.add_argument("--api-base", default="", help="the address of an OpenAI-compatible server, with /v1")
        add.add_argument("--api-key-env", default="", help="the environment variable that holds the key")
        add.add_argument("--context", type=int, help="tokens of its window (default: what litellm knows)")
        add.add_argument("--max-output", type=int, help="tokens of an answer at most (default: what litellm knows)")
        listing = verbs.add_parser("list", help="list the models")
        listing.add_argument("--json", action="store_true")
        check = verbs.add_parser("check", help="ask a model one short question")
        check.add_argument("alias")

    def handle(self, *args: Any, **options: Any) -> None:
        """One verb."""
        try:
            {"add": self._add, "list": self._list, "check": self._check}[options["verb"]](options)
        except MnesisError as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from None

    def _add(self, options: dict[str, Any]) -> None:
        spec, is_known = _spec(options)
        store.put_model(spec, api_key_env=options["api_key_env"])
        self.stdout.write(f"{spec.alias}: {spec.litellm_model}, window {spec.context_window:,} tokens")
        if not is_known and not options["context"]:
            self.stdout.write(
                f"Its window is not known; {spec.context_window:,} is assumed. Say --context to change it."
            )
        if options["api_key_env"] and not os.environ.get(options["api_key_env"]):
            self.stdout.write(
                f"Note: {options['api_key_env']} is not set here; the server needs it when it calls the model."
            )

    def _list(self, options: dict[str, Any]) -> None:
        models = list_models()
        if options["json"]:
            names = ("alias", "litellm_model", "api_base", "context_window", "max_output_tokens")
            self.stdout.write(json.dumps([{name: getattr(spec, name) for name in names} for spec in models], indent=2))
            return
        for spec in models:
            place = f" at {spec.api_base}" if spec.api_base else ""
            self.stdout.write(f"{spec.alias:20} {spec.litellm_model}{place}, window {spec.context_window:,}")

    def _check(self, options: dict[str, Any]) -> None:
        model = get_model(options["alias"])
        payload = {"messages": [{"role": "user", "content": "Answer with one word: ready?"}]}
        reply = asyncio.run(complete(model, Request(payload=payload, max_output_tokens=64)))
        if reply.error is not None:
            raise reply.error
        usage = f"{reply.usage.input_tokens} + {reply.usage.output_tokens} tokens ({reply.usage.source})"
        self.stdout.write(f"{options['alias']} answers: {reply.text.strip()[:200]!r}, {reply.finish_reason}, {usage}")


def _spec(options: dict[str, Any]) -> tuple[ModelSpec, bool]:
    """The model to store, and whether litellm knows it."""
    # A server of one's own is in nobody's price list, and looking there takes seconds.
    known = None if options["api_base"] else model_metadata(options["litellm"])
    window, output, input_price, output_price = known or (UNKNOWN_WINDOW, UNKNOWN_OUTPUT, 0, 0)
    for name in ("context", "max_output"):
        if options[name] is not None and not 0 < options[name] <= 10_000_000:
            raise CommandError(f"--{name.replace('_', '-')} must lie between 1 and 10,000,000", returncode=2)
    window = options["context"] or window
    spec = ModelSpec(
        alias=options["alias"],
        litellm_model=options["litellm"],
        api_base=options["api_base"],
        context_window=window,
        max_output_tokens=options["max_output"] or min(output, max(1, window // 4)),
        input_micros_per_million=input_price,
        output_micros_per_million=output_price,
    )
    return spec, known is not None
