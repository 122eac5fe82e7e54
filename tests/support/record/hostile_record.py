"""A record in which every text that a page shows tries to run something or to fetch something.

In a process of its own (``tests.support.processes.children``) it writes one for an account, and prints the ids of what it
wrote as JSON.
"""

from __future__ import annotations

import json

from django.contrib.auth.models import Group, User

from agents_app.store import put_listing, put_server
from audit_app.evaluation.evaluate import keep_report
from files_app.intake import keep_file
from mnesis_core.compaction.evaluation.measures import Measurement, Outcome, Question, Report, Told
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.messages import ReasoningPart, TextPart, ToolPart, ToolState
from mnesis_core.network.people import Role
from mnesis_core.records import Thumb
from mnesis_core.turns.mcp_servers import ListedTool, ServerAddress, take_listing
from mnesis_site.people import people_store
from mnesis_site.people.accounts import account_of
from sessions_app.assistants import assistant_store, prompt_store
from sessions_app.llm.model_store import Audience, allow_model, create_key, put_model
from sessions_app.models import MessagePart, ModelCall, Turn
from sessions_app.record import message_store, project_store, session_store
from sessions_app.record.change import change
from sessions_app.record.shares import share_store, sharing
from tests.support.record.inspected import add_preview, add_summary, add_turn, claim, finish
from tests.support.record.operators import settled_run
from tests.support.record.talks import say

TRACKER = "tracker.example"
"""Nobody's host; whatever asks it for something has obeyed a text."""
PAYLOADS = (
    "<script>alert(1)</script>",
    f"<img src=x onerror=alert(1)><img src=https://{TRACKER}/i.png>",
    "<svg onload=alert(1)><animate onbegin=alert(1) attributeName=x dur=1s></svg>",
    f"</title></textarea></template><iframe src=https://{TRACKER}/></iframe>",
    f"![pixel](https://{TRACKER}/p.png?secret)",
    "[press](javascript:alert(1)) <a href=javascript:alert(1)>here</a>",
    f"<style>@import url(https://{TRACKER}/s.css)</style><link rel=stylesheet href=//{TRACKER}/l.css>",
    f"<base href=https://{TRACKER}/><meta http-equiv=refresh content='0;url=https://{TRACKER}/'>",
    "<div hx-get=/password/ hx-trigger=load>x</div><form action=//tracker.example><button>Go</button></form>",
    '{{ 7|add:7 }} {% load static %} " onmouseover=alert(1) autofocus onfocus=alert(1) x="',
    "hidden \u202egpj.exe\u2066 \u200b word",
)
HOSTILE = " ".join(PAYLOADS)
BROKEN = f"\ud800 {HOSTILE}"
"""With half of a pair, which the record keeps, and which no page can hold."""
ONE_LINE = HOSTILE[:150]
MARKDOWN = "\n\n".join([*PAYLOADS, f"```{ONE_LINE}\n{HOSTILE}\n```", f"| {ONE_LINE.replace('|', '')} |\n|---|\n| x |"])
VERSIONS = 12


def main(username: str) -> int:
    """Print the ids as JSON."""
    print(json.dumps(write(User.objects.get(username=username))))
    return 0


def write(owner: User) -> dict[str, str]:
    """One of everything, for this account; returns the ids by kind."""
    alias = _enter_model(owner)
    _attach_server()
    project = project_store.create_project(owner_id=owner.pk, name=BROKEN[:100], instructions=BROKEN)
    assistant = assistant_store.create_assistant(
        owner_id=owner.pk, name=BROKEN[:100], description=BROKEN, instructions=BROKEN, starters=[BROKEN[:400]]
    )
    prompt = prompt_store.create_prompt(owner_id=owner.pk, name="hostile", title=BROKEN[:100], text=BROKEN)
    session = session_store.create_session(
        assistant_version_id=assistant.version_id,
        project_id=project.id,
        owner=owner,
        model="demo",
        title=BROKEN[:380],
        agent=BROKEN[:90],
        system_prompt=BROKEN,
        labels={"a": BROKEN[:90]},
    )
    messages = _talk(session)
    part = _prune_first(session)
    summary = _summarise(session, messages[:2])
    _begin_branches(session)
    again = _answer_again(session)
    file = keep_file(session, owner_id=owner.pk, path=f"{ONE_LINE}.txt", chunks=[f"{HOSTILE}\n".encode() * 30])
    with change(session) as record:
        share_store.create_share(record, messages[-1], title=BROKEN[:380], audience=sharing.Audience.SITE)
        message_store.rate_message(record, messages[-1], thumb=Thumb.UP, comment=BROKEN)
    return {
        "token": sharing.list_shares(owner_id=owner.pk, session_id=session)[0].token,
        "session_id": session,
        "project_id": project.id,
        "assistant_id": assistant.id,
        "prompt_id": prompt.id,
        "message_id": messages[0],
        "question": "1",
        "left": "0",
        "right": str(again),
        "part_id": part,
        "summary_id": summary,
        "preview_id": add_preview(session, summary, messages[:2], text=BROKEN),
        "file_id": file.id,
        "run_id": settled_run(session, output=HOSTILE, template=f"{{{{ item }}}} {HOSTILE}"),
        "turn_id": Turn.objects.filter(session_id=session).order_by("seq")[0].id,
        "call_id": ModelCall.objects.filter(session_id=session, purpose="turn").order_by("created_at")[0].id,
        "alias": alias,
        "report_id": _make_report(),
        "account_id": str(_make_account()),
        "group_id": str(Group.objects.get(name=ONE_LINE).pk),
    }


def _enter_model(owner: User) -> str:
    """A model for a group and for this person; returns its alias."""
    group = Group.objects.create(name=ONE_LINE)
    spec = ModelSpec(alias=HOSTILE[:100], litellm_model=ONE_LINE, context_window=8_000, max_output_tokens=900)
    put_model(spec)
    allow_model(spec.alias, Audience(groups=[group], users=[owner]))
    return spec.alias


def _make_account() -> int:
    """An account whose name and groups are hostile; returns its id."""
    user = User.objects.create_user(ONE_LINE, email=f"{ONE_LINE[:60]}@example.org", is_staff=True)
    user.groups.set(Group.objects.all())
    create_key(owner_id=user.pk, name=HOSTILE[:100])
    actor, chosen = User.objects.create_superuser("chief"), {"role": Role.MEMBER, "groups": []}
    people_store.change_account(actor.pk, user.pk, email=user.email, version=account_of(user).version, **chosen)
    return user.pk


def _make_report() -> str:
    """A report of an evaluation of two conversations, of which one has the other's name; returns its id."""
    question = Question(kind="planted", text=HOSTILE, answer="7F-2K5", place=0.5)
    told = [Told(name=name, messages=2, tokens=9, questions=(question,)) for name in (HOSTILE[:80], HOSTILE[:79])]
    outcomes = (Outcome(question=0, is_present=True, prompt_tokens=9, recalled=(1.0, 1.0)),)
    measured = [
        Measurement(
            conversation=one.name, model=HOSTILE[:100], window=4_096, policy="mnesis", fits=True, outcomes=outcomes
        )
        for one in told
    ]
    report = Report(
        id="20261126T120000-abcdef",
        at="2026-11-26T12:00:00+00:00",
        seed=1,
        plant=1,
        is_whole=False,
        conversations=tuple(told),
        measurements=tuple(measured),
        notes=(HOSTILE,),
    )
    keep_report(report)
    return report.id


def _attach_server() -> None:
    """A server with a tool."""
    server = put_server(ServerAddress(name="hostile", url="http://127.0.0.1:9/mcp"))
    listed = ListedTool(name="act", description=HOSTILE, schema={"type": "object", "title": HOSTILE})
    put_listing(server, take_listing("hostile", [listed]))


def _talk(session: str) -> list[str]:
    """Three turns, with one tool call that went well and one that failed; returns the ids of the messages."""
    tool = ToolPart(
        tool_name=HOSTILE[:100],
        tool_call_id="c1",
        input=json.dumps({"x": BROKEN}),
        output=BROKEN * 3,
        state=ToolState.COMPLETED,
    )
    failed = ToolPart(tool_name="ask", tool_call_id="c2", input=BROKEN, error=BROKEN, state=ToolState.ERROR)
    return [
        *add_turn(session, BROKEN, ReasoningPart(text=BROKEN), TextPart(text=MARKDOWN), tool, failed),
        *add_turn(session, MARKDOWN),
        *add_turn(session, "And now?"),
    ]


def _begin_branches(session: str) -> None:
    """Begin so many branches that the switcher at the third message has a field; the talk goes on on branch 0."""
    with change(session) as record:
        for _ in range(VERSIONS):
            session_store.begin_branch(record, parent=0, after_seq=2)


def _answer_again(session: str) -> int:
    """Answer the first question once more on a branch, and return its number; the talk goes on on branch 0."""
    with change(session) as record:
        number = session_store.begin_branch(record, parent=0, after_seq=1)
        session_store.choose_branch(record, number)
    say(session, ("assistant", [TextPart(text=BROKEN)]))
    with change(session) as record:
        session_store.choose_branch(record, 0)
    return number


def _summarise(session: str, messages: list[str]) -> str:
    """A summary of the first two messages; returns its id."""
    run = claim(session)
    summary = add_summary(session, run, messages, (1, 2), text=BROKEN, level=3)
    finish(session, run)
    return summary


def _prune_first(session: str) -> str:
    """Prune the output of the first tool call; returns the id of its part."""
    part = MessagePart.objects.filter(session_id=session, part_type="tool").order_by("part_index")[0].id
    with change(session) as record:
        message_store.tombstone_parts(record, [part])
    return part
