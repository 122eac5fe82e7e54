"""Real conversations, read from files that live beside the repository and never in it."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mnesis_core.transcripts import FORMATS
from mnesis_core.transcripts.values import Transcript

FOLDER = Path(os.environ.get("MNESIS_SAMPLES") or Path(__file__).resolve().parents[4] / "shared" / "data")
"""Where the files are; the variable names another folder."""
LONG_SESSION = "claude_code/long.jsonl.gz"
LOCOMO = "locomo/locomo2.json"
_DIALOGUE_ID = re.compile(r"D\d+:\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One conversation."""

    name: str
    transcript: Transcript
    evidence: tuple[str, ...] = ()
    """External ids of the messages that the answers to its questions are in, each once."""


def read_samples(folder: Path = FOLDER) -> list[Sample]:
    """A long agent session and two long conversations.

    :raises FileNotFoundError: the folder or one of the files is not there.
    """
    return [_read_session(folder / LONG_SESSION), *_read_locomo(folder / LOCOMO)]


def _read_session(path: Path) -> Sample:
    [transcript] = FORMATS["claude_code"](gzip.decompress(path.read_bytes()), name=path.name).transcripts
    return Sample(name="agent session", transcript=transcript)


def _read_locomo(path: Path) -> Iterator[Sample]:
    text = path.read_text(encoding="utf-8")
    evidence = {
        sample["sample_id"]: _DIALOGUE_ID.findall(str([one["evidence"] for one in sample["qa"]]))
        for sample in json.loads(text)
    }
    for transcript in FORMATS["locomo"](text, name=path.name).transcripts:
        said = {message.external_id for message in transcript.messages}
        # In some samples of LoCoMo a question names a turn that is not there.
        named = [id for id in dict.fromkeys(evidence[transcript.external_id]) if id in said]
        yield Sample(name=f"LoCoMo {transcript.external_id}", transcript=transcript, evidence=tuple(named))
