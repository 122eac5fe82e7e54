"""``manage.py up``, as a user meets it: what it prints, what it starts, and that nothing of it stays."""

from __future__ import annotations

import re
import signal
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest
from django.core.management import CommandError, call_command

from tests.support.sites.site import (
    Site,
    environment_for,
    lay_database,
    manage,
    running_site,
    wait_until,
    wait_until_ready,
)
from tests.support.sites.webs import children
from tests.support.waiting import PATIENCE_SECONDS

PASSWORD = "high-tide-at-ten"
SET_PASSWORD = (
    f"from django.contrib.auth.models import User; u = User.objects.get(); u.set_password('{PASSWORD}'); u.save()"
)
GUARDS_OF_EDGES = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'summary_edges'"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("site"), is_prepared=False) as running:
        yield running


@pytest.fixture
def browser(site: Site) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site.url, follow_redirects=True) as client:
        yield client


def test_the_web_server_lives_and_the_worker_makes_it_ready(site: Site) -> None:
    assert httpx.get(f"{site.url}/livez").json() == {"status": "ok"}
    wait_until_ready(site)
    assert httpx.get(f"{site.url}/readyz").json() == {"ready": True}


def test_a_worker_is_known_by_its_signs_of_life(site: Site) -> None:
    wait_until_ready(site)
    [cluster] = [child for child in children(site, "qcluster") if child.ppid() == site.launcher.pid]
    ask = "from mnesis_site.readiness import worker_gives_sign as sign; print(sign({}), sign({}))"
    done = site.manage("shell", "-v0", "-c", ask.format(cluster.pid, site.launcher.pid))
    assert done.stdout.split() == ["True", "False"]


def test_the_printed_link_signs_in_by_a_button_until_a_password_is_set(site: Site, browser: httpx.Client) -> None:
    link = site.sign_in_link()
    assert browser.get(link).status_code == 200  # as a preview does
    assert "sessionid" not in browser.cookies
    site.sign_in(browser)
    page = browser.get("/password/")
    assert "Choose a password" in page.text
    with httpx.Client(follow_redirects=True) as other:
        assert other.get(link).status_code == 200
        form = {
            "csrfmiddlewaretoken": browser.cookies["csrftoken"],
            "new_password1": PASSWORD,
            "new_password2": PASSWORD,
        }
        assert browser.post("/password/", data=form).url.path == "/"
        assert other.get(link).status_code == 410
    assert browser.get("/admin/").status_code == 200


def test_a_killed_worker_is_started_again_and_leaves_no_orphan(site: Site) -> None:
    wait_until_ready(site)
    cluster = children(site, "qcluster")[0]
    old = [cluster, *cluster.children(recursive=True)]
    cluster.kill()
    _gone, alive = psutil.wait_procs(old, timeout=PATIENCE_SECONDS)
    assert not alive
    wait_until(lambda: children(site, "qcluster"))
    assert "The worker stopped by itself (status -9) and is started again." in site.output()


if sys.platform == "linux":  # no other system tells a child of its parent's death

    @pytest.mark.slow
    def test_nothing_stays_when_the_launcher_is_killed(site: Site) -> None:
        """The last one of this site."""
        wait_until_ready(site)
        tree = site.processes()
        site.launcher.kill()
        _gone, alive = psutil.wait_procs(tree, timeout=PATIENCE_SECONDS)
        assert not alive


@pytest.mark.slow
def test_behind_a_proxy_the_printed_link_leads_through_it(tmp_path: Path) -> None:
    origins = "https://*.example.org,https://mnesis.example.org"
    with running_site(tmp_path, is_prepared=False, CSRF_TRUSTED_ORIGINS=origins) as site:
        assert f"Mnesis runs at {site.url}/, behind https://mnesis.example.org/" in site.output()
        assert site.sign_in_link().startswith("https://mnesis.example.org/sign-in/link/")


@pytest.mark.slow
def test_ctrl_c_leaves_no_process_and_the_next_start_prints_a_fresh_link_until_a_password_is_set(
    tmp_path: Path,
) -> None:
    with running_site(tmp_path) as site:
        wait_until_ready(site)
        tree, unused = site.processes(), site.sign_in_link()
        assert len(tree) >= 6  # the launcher, the web server, and the cluster: main, guard, worker, monitor, pusher
        site.launcher.send_signal(signal.SIGINT)
        assert site.launcher.wait(timeout=PATIENCE_SECONDS) == 0
        _gone, alive = psutil.wait_procs(tree, timeout=PATIENCE_SECONDS)
        assert not alive
    with running_site(tmp_path) as site:
        assert site.sign_in_link()
        assert httpx.get(unused.replace(unused.split("/")[2], f"127.0.0.1:{site.port}")).status_code == 200
        assert site.manage("shell", "-c", SET_PASSWORD).returncode == 0
    with running_site(tmp_path) as site:
        assert not site.sign_in_link()


@pytest.mark.slow
def test_a_port_in_use_is_one_sentence_and_exit_status_1(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = manage("up", "--port", str(port), environment=environment_for(tmp_path))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.strip() == (
        f"CommandError: Port {port} on 127.0.0.1 is in use."
        f" Stop what uses it, or choose another: manage.py up --port {port + 1}"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "192.0.2.1"), "192.0.2.1 is not an address of this machine"),
        (("--host", "no-such-host.invalid"), "no-such-host.invalid is not an address of this machine"),
    ],
)
def test_an_address_that_cannot_be_used_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    done = manage("up", *arguments, environment=environment_for(tmp_path))
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--port", "99999", "a port is a number from 1 to 65535, not '99999'"),
        ("--port", "http", "a port is a number from 1 to 65535, not 'http'"),
        ("--workers", "0", "at least 1 worker is needed, not '0'"),
    ],
)
def test_a_bad_argument_is_named(option: str, value: str, words: str) -> None:
    with pytest.raises(CommandError, match=re.escape(words)):
        call_command("up", option, value)


@pytest.mark.slow
def test_a_bad_argument_at_a_terminal_is_exit_status_2(tmp_path: Path) -> None:
    done = manage("up", "--port", "99999", environment=environment_for(tmp_path))
    assert done.returncode == 2
    assert "a port is a number from 1 to 65535" in done.stderr


@pytest.mark.slow
def test_a_database_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    environment = environment_for(tmp_path, DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    done = manage("up", environment=environment)
    assert done.returncode == 1
    assert "DATABASE_URL says where it is" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("MNESIS_CONFIG", "no-such-file.toml", "MNESIS_CONFIG: no-such-file.toml cannot be read"),
        ("MNESIS_PROMPTS", "no-such-folder", "MNESIS_PROMPTS: no-such-folder cannot be read: No such file"),
        ("MNESIS_DEFAULT_MODEL", "nosuch", "MNESIS_DEFAULT_MODEL: no model is called 'nosuch'"),
    ],
)
def test_a_wrong_setting_stops_the_start_in_one_sentence(tmp_path: Path, name: str, value: str, words: str) -> None:
    lay_database(tmp_path)
    done = manage("up", environment=environment_for(tmp_path, **{name: value}))
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_configuration_that_names_a_tool_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    lay_database(tmp_path)
    config = tmp_path / "mnesis.toml"
    config.write_text('[turn]\ntools = ["calculatr"]\n')
    done = manage("up", environment=environment_for(tmp_path, MNESIS_CONFIG=str(config)))
    assert done.returncode == 1
    assert "(mnesis.E010) The configuration (MNESIS_CONFIG) names the tool 'calculatr'" in done.stderr


@pytest.mark.slow
def test_a_record_that_is_not_guarded_is_not_served(tmp_path: Path) -> None:
    """What 'migrate' cannot put right: a table that has lost a column gets no guards, half of which would be wrong."""
    environment = environment_for(tmp_path)
    lay_database(tmp_path)
    with closing(sqlite3.connect(tmp_path / "mnesis.sqlite3")) as database:
        database.executescript(
            "".join(f"DROP TRIGGER {name};" for [name] in database.execute(GUARDS_OF_EDGES).fetchall())
            + "ALTER TABLE summary_edges DROP COLUMN source_type"
        )
    done = manage("up", environment=environment)
    assert done.returncode == 1
    assert "CommandError: The record is not guarded as declared.\n" in done.stderr
    assert "summary_edges is not guarded: guard_summary_edges_frozen is missing." in done.stderr
    assert "Mnesis runs" not in done.stdout
