"""What the model server of these tests does for each model's name: answers, bad ends, breaks and refusals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction

from tests.support.providers.openai import openai_answers, openai_faults
from tests.support.providers.openai.openai_exchange import Exchange

SCENARIOS: dict[str, Callable[[Exchange], Awaitable[None]]] = {
    name: play
    for module in (openai_answers, openai_faults)
    for name, play in vars(module).items()
    if iscoroutinefunction(play)
}


async def no_such_model(exchange: Exchange) -> None:
    """What every other name gets."""
    await exchange.error(404, f"The model '{exchange.request.model}' does not exist.", code="model_not_found")
