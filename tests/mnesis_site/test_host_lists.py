"""What is listed where nothing is said: something on a site for its own machine, elsewhere nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import httpx
import pytest

from mnesis_site.management.commands.up import is_loopback
from tests.sessions_app.llm.test_models_page import ENTERED
from tests.support.providers.openai.openai_server import OpenAIServer
from tests.support.sites.site import ROOT, Site, environment_for, running_site
from tests.support.waiting import PATIENCE_SECONDS

COUNTS = """
from mnesis_site.settings import MNESIS
lists = MNESIS["HOST_LISTS"]
print([bool(each) for each in (lists.programs, lists.variables, lists.addresses)])
"""


def token(page: httpx.Response) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
    assert found is not None
    return found[1]


def entered(site: Site, api_base: str) -> str:
    """What the page says to an administrator who enters a model."""
    with httpx.Client(base_url=site.url, follow_redirects=True, timeout=PATIENCE_SECONDS) as client:
        site.sign_in(client)
        values = ENTERED | {"litellm_model": "openai/ok", "api_base": api_base, "api_key_env": ""}
        sent = values | {"csrfmiddlewaretoken": token(client.get("/models/add/"))}
        page = client.post("/models/add/", data=sent)
        if "big is saved" in page.text:
            page = client.post("/models/big/check/", data={"csrfmiddlewaretoken": token(page)})
        return unescape(page.text)


@pytest.mark.slow
def test_a_model_server_on_the_same_machine_is_entered_by_page_and_asked(tmp_path: Path) -> None:
    with OpenAIServer() as server, running_site(tmp_path) as site:
        assert "big answered after" in entered(site, server.base_url)
        assert site.manage("model", "check", "big").returncode == 0
        assert len(server.requests) == 2


@pytest.mark.slow
def test_a_site_that_is_not_for_its_own_machine_lists_nothing(tmp_path: Path) -> None:
    with OpenAIServer() as server, running_site(tmp_path, MNESIS_LOCAL="false") as site:
        assert "127.0.0.1 is no public address and is not on the list" in entered(site, server.base_url)
        assert server.requests == []


def counts(environment: dict[str, str]) -> str:
    """Return which lists the settings of a process have."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTS], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("changed", "is_listed"),
    [
        ({}, True),
        ({"MNESIS_LOCAL": "false"}, False),
        ({"MNESIS_ROLE": "web"}, False),
        ({"MNESIS_ROLE": "worker"}, False),
        ({"MNESIS_LOCAL": "true", "ALLOWED_HOSTS": "mnesis.example.org"}, False),
        ({"MNESIS_LOCAL": "true", "MNESIS_HTTPS": "true"}, False),
        ({"MNESIS_LOCAL": "true", "CSRF_TRUSTED_ORIGINS": "https://mnesis.example.org"}, False),
    ],
)
def test_what_is_listed_where_nothing_is_said(changed: dict[str, str], is_listed: bool, tmp_path: Path) -> None:
    assert counts(environment_for(tmp_path, **changed)) == str([is_listed] * 3)


def test_none_takes_a_default_away(tmp_path: Path) -> None:
    environment = environment_for(tmp_path, MNESIS_MCP_PROGRAMS="none", MNESIS_PRIVATE_ADDRESSES="10.0.0.5")
    assert counts(environment) == "[False, True, True]"


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("10.0.0.5", False), ("box", False)],
)  # fmt: skip
def test_only_an_address_on_loopback_is_for_the_same_machine(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local
