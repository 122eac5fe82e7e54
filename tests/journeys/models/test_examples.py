"""The examples of docs/howto/programs/bring-your-own-model.md, run as they are against a site and a provider on loopback."""

from __future__ import annotations

import json
import re

import pytest

from tests.journeys.conftest import Caller
from tests.support.providers.provider_server import ProviderServer
from tests.support.sites.site import ROOT

EXAMPLES = re.findall(
    r"^## With (\S+) package\n.*?```python\n(.*?)```",
    (ROOT / "docs/howto/programs/bring-your-own-model.md").read_text(),
    re.S | re.M,
)


@pytest.mark.parametrize("code", [code for _, code in EXAMPLES], ids=[name for name, _ in EXAMPLES])
def test_an_example_runs_as_it_stands(caller: Caller, monkeypatch: pytest.MonkeyPatch, code: str):
    with ProviderServer() as provider:
        for name, value in {
            "MNESIS_URL": caller.site.url,
            "MNESIS_KEY": caller.key,
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "OPENAI_API_KEY": "key",
            "ANTHROPIC_BASE_URL": provider.url,
            "ANTHROPIC_API_KEY": "key",
        }.items():
            monkeypatch.setenv(name, value)
        names: dict[str, object] = {}
        exec(compile(code, "example", "exec"), names)
        session = str(names["session"]["id"])  # type: ignore[index]
        for client in ("mnesis", "model"):
            names[client].close()  # type: ignore[attr-defined]
    assert caller.texts(session) == ["When is high tide?", "answer 1", "And the next one?", "answer 2"]
    first, second = (json.dumps(request) for request in provider.requests)
    assert "Be brief." in first
    assert all(text in second for text in ("When is high tide?", "answer 1", "And the next one?"))
    [later, earlier] = caller.call("GET", f"/api/sessions/{session}/turns")["items"]
    assert (earlier["usage"]["input_tokens"], later["usage"]["source"]) == (11, "caller")


def test_there_is_an_example_for_each_package():
    assert [name for name, _ in EXAMPLES] == ["OpenAI's", "Anthropic's"]
