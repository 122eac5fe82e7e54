"""``python -m benchmarks [NAME …]``: runs the named benchmarks, or all, and prints a table for each.

PostgreSQL is measured too if the tests have one (TEST_POSTGRES_URL). Only the ratios are meaningful: both sides of a
ratio are measured alternately, within the same minutes, on the same machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.support.databases import fresh_environment, kinds

BENCHMARKS = {
    "append": (
        "Turns written with the ledger, against plain SQL that writes the same rows",
        ("turns before", "raw turns/s", "our turns/s", "our time / raw", "our time / in a new session"),
    ),
    "together": (
        "Sessions written at once, each turn durable when it returns, against plain SQL that writes the same rows",
        ("sessions", "raw turns/s", "our turns/s", "ours / raw", "raw p99 ms", "our p99 ms", "lock errors"),
    ),
    "verify": (
        "A record verified in both directions, against plain SQL that reads and hashes the same rows",
        ("by", "entries", "seconds", "entries/s, less the start", "time / reading and hashing"),
    ),
    "assemble": (
        "A context of 40 items, against plain SQL that reads the same rows",
        (
            "messages",
            "raw ms",
            "assembled ms",
            "assembled / raw",
            "assembled / at 100 messages",
            "payload and digest ms",
            "… / raw",
        ),
    ),
    "manifests": (
        "What calls keep of their prompts, and their payloads rebuilt, against plain SQL that reads the same rows",
        (
            *("items", "manifest in full", "as kept, bytes", "the call's row, bytes"),
            *("any call ms", "raw ms", "last call ms", "last / raw"),
        ),
    ),
    "bytes": (
        "What sessions take in the database, with every index, against the bytes of what was said",
        ("filling", "table", "said a turn", "bytes a turn", "in indexes", "all / said"),
    ),
    "turns": (
        "Whole turns with a model that answers at once, against plain SQL that reads and writes the same rows",
        (
            *("turn", "turns before", "raw ms", "our ms", "our time / raw"),
            *("raw CPU ms", "our CPU ms", "our CPU / raw", "our time / at 100 turns", "first word ms"),
        ),
    ),
    "fanout": (
        "One answer followed by many sockets, against a plain asyncio server that broadcasts each piece",
        (
            *(
                "sockets",
                "raw deliveries/s",
                "ours",
                "ours / raw",
                "raw CPU \N{MICRO SIGN}s each",
                "our CPU \N{MICRO SIGN}s each",
            ),
            *("raw CPU / ours", "delivered", "raw p50 ms at 20/s", "our p50 ms", "raw p99 ms", "our p99 ms"),
        ),
    ),
    "gateway": (
        "The first token through the gateway, against the provider asked directly; and what is kept of the requests' bytes",
        (
            *("tools and system", "direct ms", "through ms", "more ms: median", "more ms: p95", "CPU ms a request"),
            *("MB sent", "MB of the last request", "MB kept"),
        ),
    ),
    "crowd": (
        "Turns of many sessions at once in one process, with a model that answers at once",
        ("at once", "turns/s", "CPU ms a turn", "p50 ms", "p99 ms", "first call p99 ms", "MB for them"),
    ),
    "swap": (
        "A hundred messages swapped for a summary, against plain SQL that writes the same rows",
        ("messages", "raw ms", "our ms", "our p99 ms", "our time / raw"),
    ),
    "search": (
        "A search over a million tokens, against the database's own full text; and beside twice as much of others",
        ("query", "plain ms", "our ms", "our time / plain", "beside others / alone"),
    ),
    "observe": (
        "Pages of Observe over everybody's sessions, against plain SQL that reads as many rows of the newest sessions",
        ("query", "rows", "plain ms", "our ms", "our time / plain"),
    ),
    "recall": (
        "Evidence of LoCoMo's questions found by a search, in percent, beside plain FTS5 in memory",
        ("search", "questions", "@5", "@10", "@20", "days @5", "in passages", "their tokens", "ms a question"),
    ),
    "files": (
        "Files explored, each in a process of its own, against reading and hashing the same bytes",
        (
            *("kind", "file", "MB", "tokens whole", "tokens shown", "shown / MB", "seconds", "seconds / hashing"),
            *("peak MB", "looked at", "time a MB / at 10 MB"),
        ),
    ),
    "lines": (
        "Lines of a log of 115 MB by number and by pattern, against the tools of the command line on the same file",
        ("what", "tool ms", "our ms", "our time / the tool's", "MB/s"),
    ),
    "operators": (
        "Items of an operator's run with a model that answers at once, against asyncio with a semaphore, in memory",
        (
            *("items", "workers", "raw \N{MICRO SIGN}s an item", "reference \N{MICRO SIGN}s", "our time / reference"),
            *("our \N{MICRO SIGN}s an item", "our time / raw", "our items/s", "MB a worker"),
        ),
    ),
    "pages": (
        "The session page in Chromium with nothing kept from before: the medians of five looks, on SQLite",
        (
            *("messages", "place", "first byte ms", "first paint ms", "interactive ms", "document kB", "all kB"),
            *("elements", "socket to pixels ms"),
        ),
    ),
    "switching": (
        "From the click on a session in the sidebar to its first paint in Chromium, against links that prepare nothing, on SQLite",
        ("prepares nothing ms", "pressed at once ms", "rested upon ms", "pressed / nothing", "rested / nothing"),
    ),
    "drawing": (
        "The summaries of a session drawn in Chromium: the medians of five looks, on SQLite",
        ("summaries", "kB of the drawing", "drawn ms", "a step of the zoom ms", "the slowest ms"),
    ),
    "writing": (
        "An answer of 14,000 characters drawn in Chromium while it is written, against drawing the whole at each piece",
        ("answer", "ours ms", "whole ms", "ours / whole", "our slowest piece ms", "slowest whole ms"),
    ),
    "caches": (
        "An agent session of 200 calls against doubles of providers that keep prompts",
        (
            *("provider", "window", "calls", "compactions", "prompts that do not begin with the one before"),
            *("tokens of a prompt", "read from the cache", "cost / without a cache"),
        ),
    ),
    "conversations": (
        "Real conversations lived turn by turn in small windows, in tokens: what compaction does, and what is still there",
        (
            *("conversation", "window", "said", "soft", "before", "after", "at the end", "runs", "not needed"),
            *("prompts filled: median, least", "… with messages absent", "… without the question"),
            *("summaries by level", "items kept", "depth", "originals", "files", "evidence", "1 step", "2 steps"),
        ),
    ),
}

WITHOUT_DATABASE = ("files", "lines", "pages", "switching", "drawing", "writing", "caches")
"""What comes out the same on any, or is measured on SQLite alone."""


def main() -> int:
    """Run the benchmarks named by the arguments."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(BENCHMARKS)}")
    names = parser.parse_args().names
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
    for name in names or BENCHMARKS:
        title, columns = BENCHMARKS[name]
        print(f"\n{title}\n{table([('database', *columns), *measured(name)])}", flush=True)
    return 0


def measured(name: str) -> list[tuple[str, ...]]:
    """Return the rows of a benchmark's table, for every available kind of database."""
    rows = []
    for kind in kinds()[:1] if name in WITHOUT_DATABASE else kinds():
        with fresh_environment(kind) as environment:
            command = [sys.executable, "-m", "benchmarks.support.alone", name]
            answer = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
        rows += [(kind, *row) for row in json.loads(answer.stdout)]
    return rows


def table(rows: list[tuple[str, ...]]) -> str:
    """Format rows in aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.rjust, row, widths)) for row in rows)


if __name__ == "__main__":
    sys.exit(main())
