"""A small record with one of everything that has to survive a journey, written through the stores."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.admin.models import ADDITION, LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType

from agents_app.store import receive_message, take_messages
from files_app.given_store import put_project_file
from files_app.store import store_file_reference
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.messages import (
    CitationPart,
    DataPart,
    ImagePart,
    Part,
    PatchPart,
    ProviderPart,
    ProviderToolPart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolPart,
    ToolState,
    UnknownPart,
)
from mnesis_core.network.sharing import Audience
from mnesis_core.records import Thumb
from mnesis_core.turns.inbox import Draft, Hosting
from sessions_app.assistants import assistant_store
from sessions_app.llm import model_store
from sessions_app.llm.model_store import create_key
from sessions_app.record import message_store, project_store, session_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_message, load_messages
from sessions_app.record.shares import share_store
from tests.support.record.claims import add_claims
from tests.support.record.facts import add_facts, add_reflection
from tests.support.record.inspected import (
    add_preview,
    add_session,
    add_summary,
    add_turn,
    claim,
    finish,
    revise,
    tool_part,
)
from tests.support.record.operators import paused_run, settled_run

HOSTILE = "NUL \0, half \ud83d, halves \ud83d\ude00, whole 😀, escape ␛0000, bidi \u202e, lines \u2028\r\n\x85, quote ' \" \\u0000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was written."""

    ada: User
    bob: User
    talk: str
    """Ada's session: tools, a tombstone, summaries of summaries, a file, runs of operators, hostile text."""
    child: str
    """A child of it, archived."""
    deleted: str
    """Bob's."""


def make_sample() -> Sample:
    """Two people, three sessions, and settings."""
    ada, bob = User.objects.create_superuser("ada", password="Harbour-1888"), User.objects.create_user("bob")
    talk = _talk(ada)
    part = load_messages(talk, limit=2)[1].parts[0].id
    child = session_store.create_session(owner=ada, model="demo", parent_id=talk, parent_part_id=part, title="child")
    add_turn(child, "Look at the log.", tool_part())
    with change(child) as record:
        session_store.archive_session(record)
    deleted = add_session(bob, title="Away with it")
    add_turn(deleted, "A secret of bob's.")
    with change(deleted) as record:
        session_store.soft_delete_session(record)
    assistant_store.create_assistant(owner_id=ada.pk, name=HOSTILE[:100], instructions=HOSTILE, people=["bob"])
    project = project_store.create_project(owner_id=ada.pk, name=HOSTILE[:100], instructions=HOSTILE)
    project_store.add_member(project.id, owner_id=ada.pk, name="bob")
    put_project_file(project.id, path=HOSTILE, content_id="ab" * 32, size=7)
    with change(talk) as record:
        session_store.update_session(record, project_id=project.id)
    _settings(ada, bob)
    return Sample(ada=ada, bob=bob, talk=talk, child=child, deleted=deleted)


def _talk(owner: User) -> str:
    talk = session_store.create_session(
        owner=owner, model="demo", title=HOSTILE[:150], labels={"κλειδί": HOSTILE}, config={"share": 0.1, "on": True}
    )
    messages = [
        *add_turn(talk, HOSTILE, tool_part(HOSTILE, input='{"at": "quay"}')),
        *add_turn(talk, "And now?", ReasoningPart(text=HOSTILE), TextPart(text="14 metres"), _failed_tool()),
        *add_turn(talk, "", DataPart(label="x", text="{}"), *_beyond_text()),
        *add_turn(talk, "Still in context."),
    ]
    with change(talk) as record:
        session_store.update_session(record, hosting=Hosting(is_on=True, name="harbour"))
        taken, _ = (receive_message(record, Draft(text=HOSTILE)) for _ in range(2))
    with change(talk) as record:
        turn_id = load_message(messages[0], session_id=talk).turn_id
        take_messages(record, [taken], turn_id=str(turn_id))
        session_store.update_session(record, hosting=Hosting(is_on=False, name="harbour"))
        message_store.tombstone_parts(record, [load_messages(talk, limit=2)[1].parts[0].id])
        store_file_reference(record, content_id="ab" * 32, path=HOSTILE, exploration_summary="a tide table")
        share_id = share_store.create_share(record, messages[0], title=HOSTILE[:400], audience=Audience.SITE)
        share_store.add_opening(record, share_id, reader="", day=1)
        message_store.rate_message(record, messages[1], thumb=Thumb.DOWN, comment=HOSTILE)
    with change(talk) as record:
        session_store.choose_branch(record, session_store.begin_branch(record, parent=0, after_seq=2))
    add_turn(talk, "And tomorrow?")
    with change(talk) as record:
        session_store.choose_branch(record, 0)
    settled_run(talk, output=HOSTILE, template=f"{{{{ item }}}} {HOSTILE}", idempotency_key=HOSTILE)
    paused_run(talk)
    run = claim(talk)
    leaves = [
        add_summary(talk, run, messages[0:2], (1, 2), text=HOSTILE),
        add_summary(talk, run, messages[2:6], (3, 6), level=3),
    ]
    add_summary(talk, run, leaves, (1, 6), kind="condensed", text="Tides.")
    finish(talk, run)
    revise(talk, leaves[0], messages[0:2], text=HOSTILE * 2)
    add_preview(talk, leaves[1], messages[2:6], text=HOSTILE)
    add_facts(talk, messages[0], HOSTILE, reflection_id=add_reflection(talk, leaves[1]))
    add_claims(talk, leaves[1], messages[2], missing=HOSTILE)
    return talk


def _beyond_text() -> list[Part]:
    return [
        PatchPart(unified_diff="-a\n+b", files_changed=("a", "b")),
        ImagePart(file_id="file_0123456789abcdef", name=HOSTILE, caption=HOSTILE, size=9, width=3, height=2),
        ProviderPart(provider="anthropic", kind="thinking", data='{"b": "\\ud83d",  "a": 1e3, "a": 2}'),
        ProviderToolPart(provider="openai", tool_name="web_search", tool_call_id="ws_1", input=HOSTILE, output=HOSTILE),
        CitationPart(text=HOSTILE, url="https://a.example", start=1, end=9),
        RefusalPart(text=HOSTILE),
        UnknownPart(type="hologram", data=HOSTILE, label="later"),
    ]


def _failed_tool() -> ToolPart:
    return ToolPart(tool_name="ask", tool_call_id="c2", input="no JSON", error="refused", state=ToolState.ERROR)


def _settings(ada: User, bob: User) -> None:
    group = Group.objects.create(name="harbour")
    group.permissions.set(Permission.objects.filter(codename__startswith="view_"))
    bob.groups.add(group)
    bob.user_permissions.add(Permission.objects.get(codename="view_session", content_type__app_label="sessions_app"))
    create_key(owner_id=ada.pk)
    spec = ModelSpec(alias="big", litellm_model="x/big", context_window=8_000, max_output_tokens=900)
    model_store.put_model(spec, api_key_env="BIG_KEY")
    LogEntry.objects.create(
        user=ada,
        content_type=ContentType.objects.get_for_model(Group),
        object_id=str(group.pk),
        object_repr="harbour",
        action_flag=ADDITION,
        change_message="[]",
    )
