"""What sessions begin with by their project and their assistant, as owners make them and sessions take them: with the
tools, which the record does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.utils.translation import gettext_noop

from agents_app.tools.registry import EVERY, check_tools, list_tools
from files_app.given_store import Upload, keep_uploads
from files_app.pictures import keep_portrait
from mnesis_core.config import layered, tightened
from mnesis_core.errors import InvalidRequest, ModelNotFoundError
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.records import AssistantRecord, ProjectRecord, SessionRecord
from mnesis_core.turns.mcp_servers import SEPARATOR
from sessions_app.assistants import assistant_store
from sessions_app.assistants.assistant_store import PREFIX, assistant_of, list_assistants, load_assistant
from sessions_app.conf import checked_config, default_model, get_spec, site_config
from sessions_app.record import project_store

MOST_OFFERED = 200  # assistants in a list of models


def defaults_of(project: ProjectRecord | None, assistant: AssistantRecord | None) -> dict[str, Any]:
    """Return what is configured of a session that begins in a project with an assistant, which stands above the project."""
    below, above = project.config if project else {}, assistant.config if assistant else {}
    return tightened(layered(below, above), site_config().turn)


def check_default_tools(config: dict[str, Any] | None, *, owner_id: int) -> None:
    """:raises InvalidRequest: a configuration is none, or names a tool that its owner does not have."""
    if config:
        checked_config(config)
        check_tools(config.get("turn", {}).get("tools", ()), user_id=owner_id)


def missing_tools(config: Mapping[str, Any], *, user_id: int) -> list[str]:
    """Return the tools in a configuration that are not there for a person, who is answered without them."""
    said = config.get("turn", {}).get("tools", ())
    if not said:
        return []
    has = {tool.spec.name for tool in list_tools(user_id=user_id)}
    sources = {name.partition(SEPARATOR)[0] + SEPARATOR + EVERY for name in has if SEPARATOR in name}
    return [name for name in said if name not in has and name not in sources]


# Projects as their owners make and change them: with the tools of sessions that begin in one, which the record does
# not know.


def create_project(*, owner_id: int, **values: Any) -> ProjectRecord:
    """:raises MnesisError: as ``project_store.create_project``
    :raises InvalidRequest: it names a tool that its owner does not have.
    """
    check_default_tools(values.get("config"), owner_id=owner_id)
    return project_store.create_project(owner_id=owner_id, **values)


def update_project(project_id: str, *, owner_id: int, **values: Any) -> ProjectRecord:
    """:raises MnesisError: as ``project_store.update_project``
    :raises InvalidRequest: it newly names a tool that its owner does not have.
    """
    before = project_store.load_own_project(project_id, owner_id=owner_id)
    if values.get("config") != before.config:
        check_default_tools(values.get("config"), owner_id=owner_id)
    return project_store.update_project(project_id, owner_id=owner_id, **values)


# Assistants as their owners and the sessions that begin with them use them: with the tools, which the record does not
# know.


def create_assistant(
    *, owner_id: int, uploads: Sequence[Upload] = (), portrait: Iterable[bytes] | None = None, **values: Any
) -> AssistantRecord:
    """:param portrait: a picture that arrives in pieces
    :raises MnesisError: as ``assistant_store.create_assistant``, ``keep_uploads`` and ``keep_portrait``
    :raises InvalidRequest: it names a tool that its owner does not have.
    """
    check_default_tools(values.get("config"), owner_id=owner_id)
    if portrait is not None:
        values["picture"] = keep_portrait(portrait)
    kept = keep_uploads(uploads, owner_id=owner_id)
    return assistant_store.create_assistant(owner_id=owner_id, added_files=kept, **values)


def update_assistant(
    assistant_id: str,
    *,
    owner_id: int,
    uploads: Sequence[Upload] = (),
    portrait: Iterable[bytes] | None = None,
    **values: Any,
) -> AssistantRecord:
    """:param portrait: a picture that arrives in pieces; ``picture=""`` among the values takes away the one there is
    :raises MnesisError: as ``assistant_store.update_assistant``, ``keep_uploads`` and ``keep_portrait``
    :raises InvalidRequest: it names a tool that its owner does not have.
    """
    assistant_store.load_own_assistant(assistant_id, owner_id=owner_id)
    check_default_tools(values.get("config"), owner_id=owner_id)
    if portrait is not None:
        values["picture"] = keep_portrait(portrait)
    kept = keep_uploads(uploads, owner_id=owner_id)
    return assistant_store.update_assistant(assistant_id, owner_id=owner_id, added_files=kept, **values)


def model_in_assistant(assistant: AssistantRecord, *, user_id: int) -> str:
    """Return the model of a person's sessions that begin with an assistant; empty if it has no say.

    :raises ModelNotFoundError: it is gone, or this person may not use it.
    """
    try:
        if assistant.model:
            get_spec(assistant.model, user_id=user_id)
    except ModelNotFoundError as error:
        raise ModelNotFoundError(
            gettext_noop(
                "This assistant's model %(model)s no longer exists or is not available to you. Choose another model for this session, or ask the assistant's owner to change it."
            ),
            {"model": repr(assistant.model)},
            model=assistant.model,
        ) from error
    return assistant.model


def offered_assistants(there: Sequence[ModelSpec], *, user_id: int) -> list[tuple[AssistantRecord, ModelSpec]]:
    """Return the assistants that a person may ask as models, each with its model; without those whose model is gone.

    :param there: the models that the person may use
    """
    specs, default = {spec.alias: spec for spec in there}, default_model()
    found = [(one, one.model or default) for one in list_assistants(user_id=user_id, limit=MOST_OFFERED)]
    return [(one, specs[alias]) for one, alias in found if alias in specs]


def assistant_named(model: str, *, user_id: int) -> AssistantRecord | None:
    """Return the assistant that is named where a model is expected; ``None`` for the name of a model.

    :raises AssistantNotFoundError: there is no such assistant, or this person may not use it.
    """
    return load_assistant(model.removeprefix(PREFIX), user_id=user_id) if model.startswith(PREFIX) else None


def spec_named(model: str, *, user_id: int) -> ModelSpec:
    """Return the model behind a name where a model is expected: a model's own, or an assistant's.

    :raises ModelNotFoundError, AssistantNotFoundError: there is none of this name, or it is not for this person.
    """
    assistant = assistant_named(model, user_id=user_id)
    alias = model if assistant is None else model_in_assistant(assistant, user_id=user_id) or default_model()
    return get_spec(alias, user_id=user_id)


def model_in_session(model: str, session: SessionRecord) -> str:
    """Return the model that a request for a session names; that of the session if it names the session's assistant.

    :raises InvalidRequest: it names another assistant.
    """
    if not model.startswith(PREFIX):
        return model
    has = assistant_of(session)
    if has is None or has.id != model.removeprefix(PREFIX):
        raise InvalidRequest(
            gettext_noop("this session did not begin with this assistant; begin a new one"), field="model"
        )
    return session.model
