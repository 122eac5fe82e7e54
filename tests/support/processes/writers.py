"""Writers that are killed. Each appends turn after turn as the site does, and says a word after every commit.

Starting Python takes far longer than a turn, so one warmed-up process forks all of them. Each process is two writers,
in threads: on SQLite they share commits. It is killed a few milliseconds after its first commit and the next one takes
its place, often with the keys whose outcome nobody knows. ``main`` prints all that a client would know, a line a word.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable

from agents_app.turns.claim import claim_turn
from agents_app.turns.transactions import held
from mnesis_core.errors import Conflict
from mnesis_core.messages import Message, TextPart, ToolPart, ToolState
from mnesis_core.records import MessageEnd, TurnRecord, TurnState
from sessions_app.record import message_store, turn_store
from sessions_app.record.session_queries import load_session

KILL_AFTER_SECONDS = (0.005, 0.060)
RETRIES = 0.7
"""Of the turns whose writer was killed, how many are asked for again with their key."""
BUSY_SECONDS = 0.01
BEGUN, CLAIMED, STREAMED, ANSWERED = "begun", "claimed", "streamed", "answered"
OVER, REFUSED = "over", "refused"
COMMITS = (CLAIMED, STREAMED, ANSWERED)

Say = Callable[[str, str], None]
"""Takes a key and a word."""


def question(key: str) -> str:
    """What the user says in the turn of this key."""
    return f"question {key}"


def first_words(key: str) -> str:
    """What is durable of the answer before its end."""
    return f"so far {key}; "


def whole_answer(key: str) -> str:
    """The answer at its end."""
    return f"{first_words(key)}answer {key}"


def append_turns(sessions: list[str], prefix: str, retried: dict[str, str], say: Say) -> None:
    """Append turns, a thread for each session, until this process is killed.

    ``retried`` holds for some of the sessions the key to begin with, which may have been used before.
    """
    for session in sessions:
        arguments = session, f"{session}/{prefix}", retried.get(session, ""), say
        threading.Thread(target=append_to, args=arguments).start()


def append_to(session_id: str, prefix: str, retried: str, say: Say) -> None:
    """One turn after the other; an error ends the whole process, or it would go unseen."""
    try:
        owner_id = load_session(session_id).owner_id
        for number in itertools.count():
            append_turn(session_id, owner_id, retried or f"{prefix}-{number}", say)
            retried = ""
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def append_turn(session_id: str, owner_id: int, key: str, say: Say) -> None:
    """One turn in its four commits.

    Says ``begun``, and after a commit ``claimed``, ``streamed`` (two of them) and ``answered``. ``over``: the key has
    started a turn before, which is recovery's now. ``refused``: another turn runs in the session, or took this one.
    """
    say(key, BEGUN)
    try:
        started = claim_turn(
            session_id, owner_id=owner_id, message=question(key), idempotency_key=key, lease_owner=str(os.getpid())
        )
        say(key, CLAIMED if started.is_new else OVER)
        if not started.is_new:
            return
        message_id = stream_answer(started.turn, key)
        say(key, STREAMED)
        end_turn(started.turn, message_id, key)
        say(key, ANSWERED)
    except Conflict:
        say(key, REFUSED)
        time.sleep(BUSY_SECONDS)


def stream_answer(turn: TurnRecord, key: str) -> str:
    """The assistant's stub, and the first words in the journal."""
    with held(turn) as record:
        message_id = message_store.append_message(record, turn_id=turn.id, message=Message(role="assistant", parts=()))
    piece = message_store.Piece(part_index=0, part_type=TextPart.type, offset=0, text=first_words(key))
    message_store.append_journal(session_id=turn.session_id, message_id=message_id, pieces=[piece])
    return message_id


def end_turn(turn: TurnRecord, message_id: str, key: str) -> None:
    """The whole answer with two tool calls, and the turn's end."""
    tools = [
        ToolPart(tool_name="t", tool_call_id=f"{key} {at}", input="{}", output=key, state=ToolState.COMPLETED)
        for at in range(2)
    ]
    with held(turn) as record:
        message_store.append_parts(record, message_id=message_id, parts=[TextPart(text=whole_answer(key)), *tools])
        message_store.finalize_message(record, message_id, MessageEnd(outcome="complete"))
        message_store.delete_journal(message_id=message_id)
        turn_store.finish_turn(record, turn.id, state=TurnState.COMPLETED, fence=turn.fence)


def main(sessions: str, processes: str, kills: str, seed: str) -> int:
    """Keep so many processes at work in these sessions (ids, with commas) until there were so many kills in all."""
    ids, count = sessions.split(","), int(processes)
    places = []
    for number in range(count):
        mine = [ids[number % len(ids)], ids[(number + 1) % len(ids)]]
        share = len(range(number, int(kills), count))
        places.append(fork(functools.partial(kill_writers, number, mine, share, seed)))
    return max(os.waitstatus_to_exitcode(os.waitpid(place, 0)[1]) for place in places)


def fork(run: Callable[[], None]) -> int:
    """A process that runs this, and whatever threads it starts, and nothing else; returns its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        run()
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def kill_writers(number: int, sessions: list[str], kills: int, seed: str) -> None:
    """One process after the other at this place; prints what they say."""
    chance = random.Random(f"{seed} {number}")
    retried: dict[str, str] = {}
    for life in range(kills):
        said = kill_one(sessions, f"{seed}-{number}-{life}", retried, chance.uniform(*KILL_AFTER_SECONDS))
        last = {}
        for key, word in said:
            session_id = key.partition("/")[0]
            last[session_id] = key, word
            # Not print: it may write a line in two pieces, and there are other processes.
            os.write(1, f"{number}/{session_id} {key} {word}\n".encode())
        open_keys = {session_id: key for session_id, (key, word) in last.items() if word in (BEGUN, CLAIMED, STREAMED)}
        retried = {session_id: key for session_id, key in open_keys.items() if chance.random() < RETRIES}


def kill_one(sessions: list[str], prefix: str, retried: dict[str, str], seconds: float) -> list[list[str]]:
    """A process from its birth to its death, so many seconds after its first commit; returns what it said."""
    read, write = os.pipe()

    def write_until_killed() -> None:
        os.close(read)  # or it would go on for ever when nobody is left who could kill it
        append_turns(sessions, prefix, retried, lambda *said: tell(write, *said))

    pid = fork(write_until_killed)
    os.close(write)
    with os.fdopen(read) as lines:
        said = []
        while not said or (said[-1] and not said[-1].endswith(f"{CLAIMED}\n")):
            said.append(lines.readline())
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        said += lines
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != -signal.SIGKILL:
        raise RuntimeError(f"a writer ended by itself, with status {status}")
    return [line.split() for line in said]


def tell(pipe: int, key: str, word: str) -> None:
    """A line into a pipe: whole or not at all, whenever the process ends."""
    os.write(pipe, f"{key} {word}\n".encode())
