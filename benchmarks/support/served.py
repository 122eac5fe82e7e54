"""``python -m benchmarks.support.served PORT``: the web server of ``up`` with a scripted model."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

from django.conf import settings

from benchmarks.support.broadcasts import pieces_of
from mnesis_core.llm.interface import Model, ModelSpec, ReasoningDelta, Reply, Request, TextDelta, Usage

# This import sets up Django.
from mnesis_site.server import Program


class OrderedModel:
    """A ``mnesis_core.llm.interface.Model`` that sends the pieces requested by the last message."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    async def stream(self, request: Request) -> AsyncIterator[TextDelta | ReasoningDelta | Reply]:
        """Stream the pieces requested by the last message."""
        said = []
        async for piece in pieces_of(request.payload["messages"][-1]["content"]):
            said.append(piece)
            yield TextDelta(text=piece)
        yield Reply(text="".join(said), finish_reason="stop", usage=Usage(input_tokens=9, output_tokens=9))


def make_model(spec: ModelSpec) -> Model:
    return OrderedModel(spec)


if __name__ == "__main__":
    settings.MNESIS = {**settings.MNESIS, "MODEL_FACTORY": "benchmarks.support.served.make_model"}
    Program().run(["--bind", "127.0.0.1", "--port", sys.argv[1], "--verbosity", "0", "mnesis_site.asgi:application"])
