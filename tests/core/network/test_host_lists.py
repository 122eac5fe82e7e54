"""What a host's owner lists, and what of it pages may name."""

from __future__ import annotations

import shlex
from contextlib import nullcontext

import pytest

from mnesis_core.errors import NotListed
from mnesis_core.network.hosts import HostLists, local_lists, read_lists

FILES = "npx -y @modelcontextprotocol/server-filesystem"


def fits(listed: str, command: str) -> bool:
    try:
        read_lists(programs=listed).check_program(shlex.split(command))
    except NotListed:
        return False
    return True


@pytest.mark.parametrize(
    ("command", "may"),
    [
        (f"{FILES} /srv/docs", True),
        (f"{FILES} /srv/docs /etc", False),
        (f"{FILES} /", False),
        (FILES, False),
        ("npx", False),
        ("npx -y @modelcontextprotocol/server-everything", False),
        ("npx -c 'id' -y @modelcontextprotocol/server-filesystem /srv/docs", False),
        ("/tmp/npx -y @modelcontextprotocol/server-filesystem /srv/docs", False),
        ("sh -c id", False),
    ],
)
def test_a_program_is_listed_word_for_word(command: str, may: bool) -> None:
    assert fits(f"{FILES} /srv/docs; uvx mcp-server-time", command) is may


@pytest.mark.parametrize(
    ("rest", "may"),
    [
        ("", True),
        ("/srv/a /srv/b", True),
        ("'two words'", True),
        ("--call id", False),
        ("/srv/a -c id", False),
        ("-", False),
    ],
)
def test_what_follows_holds_no_options(rest: str, may: bool) -> None:
    assert fits(f"{FILES} ...", f"{FILES} {rest}") is may


@pytest.mark.parametrize(
    "entry",
    [
        "npx ...",
        "npx -c ...",
        "npx -p ...",
        "uvx --from ...",
        "python ...",
        "python -c ...",
        "node -e ...",
        "sh -c ...",
        "env ...",
        "...",
        "npx ... -y",
    ],
)
def test_an_entry_that_would_run_anything_stops_the_start(entry: str) -> None:
    with pytest.raises(ValueError, match="MNESIS_MCP_PROGRAMS: "):
        read_lists(programs=entry)


@pytest.mark.parametrize(
    "name",
    [
        "SECRET_KEY", "SECRET_KEY_FALLBACKS", "DATABASE_URL", "TEST_DATABASE_URL", "REDIS_URL",
        "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
        "AZURE_CLIENT_SECRET", "GOOGLE_APPLICATION_CREDENTIALS", "PGPASSWORD", "MNESIS_FILES_URL", "secret_key",
        "KUBECONFIG", "SSH_AUTH_SOCK",
    ],
)  # fmt: skip
def test_secrets_of_the_site_and_of_the_machine_are_listed_by_nobody(name: str) -> None:
    with pytest.raises(ValueError, match="may not be listed"):
        read_lists(variables=name)
    with pytest.raises(NotListed, match="never given away"):
        HostLists().check_variable(name, field="secrets")


@pytest.mark.parametrize(
    ("name", "url", "may"),
    [
        ("ISSUES_TOKEN", "https://mcp.example.org/mcp", True),
        ("ISSUES_TOKEN", "https://mcp.example.org:443/other", True),
        ("ISSUES_TOKEN", "http://mcp.example.org/mcp", False),
        ("ISSUES_TOKEN", "https://mcp.example.org.evil.example/mcp", False),
        ("ISSUES_TOKEN", "", False),
        ("OPENAI_API_KEY", "", True),
        ("OPENAI_API_KEY", "https://mcp.example.org/mcp", False),
        ("LOCAL_KEY", "http://127.0.0.1:8080/v1", True),
        ("PATH", "", False),
    ],
)
def test_a_variable_goes_only_where_it_is_listed_for(name: str, url: str, may: bool) -> None:
    lists = read_lists(variables="ISSUES_TOKEN@mcp.example.org, OPENAI_API_KEY, LOCAL_KEY@http://127.0.0.1:8080")
    with nullcontext() if may else pytest.raises(NotListed, match="MNESIS_KEY_VARIABLES="):
        lists.check_variable(name, url=url, field="secrets")


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254/latest", "http://127.0.0.1:6379/", "http://2130706433/", "http://[::ffff:10.0.0.1]/", "http://0/",
     "http://localhost/v1", "http://me:pass@example.org/", "ftp://example.org", "http://[::1"],
)  # fmt: skip
def test_an_address_inside_is_refused_in_any_form(url: str) -> None:
    with pytest.raises(NotListed):
        HostLists().check_url(url, field="api_base")


def test_the_words_say_what_to_put_where_and_repeat_no_secret() -> None:
    with pytest.raises(NotListed, match="MNESIS_MCP_PROGRAMS='npx …'") as refused:
        HostLists().check_program(["npx", "--token=hunter2"])
    assert "hunter2" not in str(refused.value.as_dict())
    with pytest.raises(NotListed, match=r"MNESIS_PRIVATE_ADDRESSES=10\.0\.0\.5"):
        HostLists().check_url("http://10.0.0.5/v1", field="url")
    with pytest.raises(NotListed, match=r"MNESIS_KEY_VARIABLES=MY_KEY@https://example\.org:443"):
        HostLists().check_variable("MY_KEY", url="https://example.org/v1", field="url")


def test_none_lists_nothing() -> None:
    assert read_lists(programs="none", variables="NONE", addresses=" none ") == HostLists()


def test_the_lists_of_a_site_for_its_own_machine_launch_servers_by_name_and_take_no_options() -> None:
    names = ("programs", "variables", "addresses")
    lists = read_lists(**dict(zip(names, local_lists("/site/bin/python").values(), strict=True)))
    for command in ("npx -c id", "npx -y -c id", "npx -y server -c id", "uvx --from evil mcp-server-time", "sh -c id",
                    "/site/bin/python -c pass", "python -m mcp_server_time"):  # fmt: skip
        with pytest.raises(NotListed):
            lists.check_program(command.split())
    for command in (f"{FILES} /srv/docs", "uvx mcp-server-git", "/site/bin/python -m mcp_server_time"):
        lists.check_program(command.split())
    lists.check_url("http://127.0.0.1:11434/v1", field="api_base")
    lists.check_variable("OPENAI_API_KEY", field="api_key_env")
    with pytest.raises(NotListed):
        lists.check_variable("OPENAI_API_KEY", url="https://evil.example/v1", field="api_key_env")
