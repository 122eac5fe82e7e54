"""A process that looks again and again for turns that were left, and says how many it closed."""

from __future__ import annotations

import time

from agents_app.turns.claim import recover_turns

LOOK_SECONDS = 0.2


def main() -> None:
    """Recover turns until the process is killed."""
    print("looks", flush=True)
    while True:
        if closed := recover_turns(lease_owner="recoverer"):
            print(f"closed {closed}", flush=True)
        time.sleep(LOOK_SECONDS)
