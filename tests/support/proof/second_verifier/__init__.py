"""A verifier of sessions that was written from ``docs/format.md`` alone: standard library only, and nothing of ours.

It shows that the document is enough, and disagrees with ``verify`` where one of the three is wrong. The tables of section 7 are
read from the document itself; all else is written after it, by the numbers of its sections.
"""

from tests.support.proof.second_verifier.directory import problems_of_directory
from tests.support.proof.second_verifier.export import Refused, read_export, read_lines
from tests.support.proof.second_verifier.ledger import problems_of_session
from tests.support.proof.second_verifier.values import Problem, Session, sessions_of_database

__all__ = [
    "Problem",
    "Refused",
    "Session",
    "problems_of_directory",
    "problems_of_session",
    "read_export",
    "read_lines",
    "sessions_of_database",
]
