"""Verify exported sessions: ``python -m tests.support.proof.second_verifier FILE…``. It exits with 1 if something is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.proof.second_verifier import Refused, problems_of_session, read_export


def main(names: list[str]) -> int:
    found = 0
    for name in names:
        with Path(name).open("rb") as lines:
            try:
                sessions = read_export(lines)
            except Refused as refused:
                print(f"{name}: {refused} is not as an export writes it")
                return 1
        for session in sessions:
            problems = sorted(problems_of_session(session))
            found += len(problems)
            print(f"{session.id}: {len(session.rows('events'))} entries, {len(problems)} problems")
            for problem in problems:
                print(f"  entry {problem.entry}: {problem.kind} {problem.subject}")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
