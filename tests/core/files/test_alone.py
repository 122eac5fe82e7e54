"""The process that explores: whatever a parser does there, it comes to a result, and nothing else comes of it."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from mnesis_core.files.sandbox import ExplorationLimits, Explored, explore_alone

MISBEHAVING = "tests.core.files.misbehaving"


def explored(
    folder: Path, deed: str, *, seconds: float = 30.0, processor_seconds: int = 20, memory_bytes: int = 1 << 31
) -> Explored:
    """What comes of a file whose parser does a deed of ``misbehaving``."""
    path = folder / "content"
    path.write_text(deed)
    limits = ExplorationLimits(seconds=seconds, processor_seconds=processor_seconds, memory_bytes=memory_bytes)
    return explore_alone(path, "deed.toml", limits=limits, child=MISBEHAVING)


def test_a_file_is_explored_and_what_it_took_is_known(tmp_path: Path) -> None:
    (tmp_path / "content").write_text("[server]\nport = 1\n")
    found = explore_alone(tmp_path / "content", "settings.toml")
    assert (found.exploration.kind, found.exploration.problem) == ("toml", "")
    assert "server" in found.exploration.summary
    assert found.seconds > 0
    assert 1_000_000 < found.peak_bytes < 100_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deed", "problem"),
    [
        ("hang", "it took longer than 2 seconds"),
        ("crash", "its parser crashed (Segmentation fault)"),
        ("leave", "its parser broke off without an answer"),
        ("grow", "it needs more memory than it may have"),
        ("connect", "its parser gave up (PermissionError: an exploration may not use socket."),
        ("start", "its parser gave up (PermissionError: an exploration may not use subprocess.Popen)"),
        ("fork", "its parser gave up (PermissionError: an exploration may not use os.fork)"),
        ("write", "its parser gave up (PermissionError: an exploration may not use open)"),
        ("remove", "its parser gave up (PermissionError: an exploration may not use os.remove)"),
    ],
)
def test_a_parser_that_misbehaves_leaves_a_description_of_the_text_that_says_why(
    tmp_path: Path, deed: str, problem: str
) -> None:
    found = explored(tmp_path, deed, seconds=2 if deed == "hang" else 30.0).exploration
    assert found.problem.startswith(problem)
    assert found.summary.startswith(f"Not read as toml: {problem}")
    assert found.summary.endswith(f"It begins:\n{deed}")
    assert not Path(__file__).with_name("written-by-a-parser").exists()


@pytest.mark.slow
def test_a_parser_that_works_for_ever_is_stopped_by_its_processor_time(tmp_path: Path) -> None:
    found = explored(tmp_path, "work", processor_seconds=1).exploration
    assert found.problem == "it took more than 1 seconds of the processor"


def test_what_a_parser_prints_is_not_in_the_answer(tmp_path: Path) -> None:
    assert explored(tmp_path, "print").exploration.summary.strip() == "done"


def test_the_process_holds_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    known = set(explored(tmp_path, "say_environment").exploration.summary.split())
    assert known <= {"done", "PATH", "LANG", "LC_CTYPE", "OMP_NUM_THREADS"}


def test_the_process_has_no_network_where_the_system_lets_it_leave_one(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "--user", "--net", "true"], capture_output=True).returncode:
        pytest.skip("namespaces are not allowed here")
    said = explored(tmp_path, "say_networks").exploration.summary
    assert [line.split(":")[0].strip() for line in said.splitlines() if ":" in line] == ["lo"]


def test_where_not_even_an_answer_can_be_given_the_file_is_unknown_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "content").write_text("a = 1\n")
    found = explore_alone(tmp_path / "content", "a.toml", limits=ExplorationLimits(output_bytes=10)).exploration
    assert (found.kind, found.summary, found.covered) == ("unknown", "", "nothing")
    assert found.problem == "its parser broke off"


def test_a_bomb_in_a_stream_is_measured_no_further_than_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_bytes(gzip.compress(bytes(80_000_000), compresslevel=1))
    found = explore_alone(path, "zeros.gz")
    assert found.exploration.problem == ""
    assert found.exploration.covered.startswith("the first")
    assert found.peak_bytes < 100_000_000


def test_every_answer_fits_its_output(tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_text("\U0001f4a3" * 60_000)
    found = explore_alone(path, "\U0001f4a3" * 200)
    assert len(json.dumps(found.exploration.summary)) < ExplorationLimits().output_bytes
