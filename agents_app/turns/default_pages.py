"""The pages of what sessions begin with: assistants and their versions, and the settings of a project."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from agents_app.turns import defaults
from agents_app.turns.defaults import missing_tools
from agents_app.turns.session_settings import DefaultsForm, facts_of
from mnesis_core.errors import MnesisError
from mnesis_core.files.pictures import FORMATS
from mnesis_core.files.references import name_of_upload
from mnesis_core.records import AssistantRecord, ProjectRecord
from sessions_app.assistants import assistant_store
from sessions_app.assistants.assistant_store import groups_of, list_assistants, list_versions, load_assistant
from sessions_app.conf import list_models
from sessions_app.pages.formats import error_text, format_size
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.views import (
    model_choices,
    reader_of,
    signed_in,
    signed_in_to_change,
    signed_in_to_post,
    to_page,
)
from sessions_app.record import project_store
from sessions_app.record.project_store import load_project
from sessions_app.schemas import page_of

PAGE = 50
EVERYONE, NAMED = "everyone", "named"


class FilesInput(forms.FileInput):
    allow_multiple_selected = True


class FilesField(forms.FileField):
    """Any number of files."""

    widget = FilesInput

    def clean(self, data: Any, initial: Any = None) -> Any:
        check = super().clean
        return [check(file, initial) for file in data]


class AssistantForm(DefaultsForm):
    description = forms.CharField(
        required=False,
        max_length=2_000,
        label=_("Description"),
        help_text=_("What it is good for. Shown to the people who can use it, not to the model."),
        widget=forms.Textarea(attrs={"rows": 2, "dir": "auto"}),
    )
    starters = forms.CharField(
        required=False,
        max_length=10_000,
        label=_("Starter questions"),
        help_text=_("One per line. Each is a button in a new chat."),
        widget=forms.Textarea(attrs={"rows": 3, "dir": "auto"}),
    )
    new_files = FilesField(
        required=False,
        allow_empty_file=True,
        label=_("Add files"),
        help_text=_(
            "Each new session gets the files with its first message. A file with the same name is replaced. People who can use the assistant can read them."
        ),
    )
    picture = forms.FileField(
        required=False,
        allow_empty_file=True,
        label=_("Picture"),
        help_text=_("PNG, JPEG, WebP or GIF, at most 1 MB. It is shown as a circle beside the name."),
        widget=forms.FileInput(attrs={"accept": ",".join(FORMATS)}),
    )
    removes_picture = forms.BooleanField(required=False, label=_("Remove the picture"))
    removed_files = forms.MultipleChoiceField(
        required=False, widget=forms.CheckboxSelectMultiple, label=_("Remove files")
    )
    audience = forms.ChoiceField(
        choices=[
            (NAMED, _("Only you, and the groups and people named here")),
            (EVERYONE, _("Everyone in your organisation")),
        ],
        widget=forms.RadioSelect,
        label=_("Who can use it"),
        help_text=_("They can read its instructions. What they write to it stays private to them."),
    )
    groups = forms.MultipleChoiceField(required=False, widget=forms.CheckboxSelectMultiple, label=_("Groups"))
    users = forms.CharField(
        required=False,
        max_length=20_000,
        label=_("People"),
        help_text=_("Usernames, separated by commas or lines."),
        widget=forms.Textarea(attrs={"rows": 2}),
    )

    def __init__(
        self, data: Any = None, files: Any = None, *, user_id: int, assistant: AssistantRecord | None = None
    ) -> None:
        said = assistant
        super().__init__(
            data,
            said=said,
            any_model=_("The site's default"),
            told=_("Sent to the model before a session's own instructions: who it is, how to answer."),
            user_id=user_id,
            description=said.description if said else "",
            starters="\n".join(said.starters) if said else "",
            audience=EVERYONE if said and said.for_everyone else NAMED,
            groups=list(said.groups) if said else [],
            users=", ".join(said.people) if said else "",
        )
        self.files = files
        has = (
            [(file.id, f"{show_invisible(file.path)} · {format_size(file.size)}") for file in said.files]
            if said
            else []
        )
        self.fields["removed_files"].choices = has  # type: ignore[attr-defined]
        groups = dict.fromkeys((*groups_of(user_id), *(said.groups if said else ())))
        self.fields["groups"].choices = [(name, name) for name in groups]  # type: ignore[attr-defined]

    def values(self) -> dict[str, Any]:
        """Return what ``defaults.create_assistant`` takes; only of a valid form."""
        given = self.cleaned_data
        return super().values() | {
            "description": given["description"],
            "groups": given["groups"],
            "starters": [line.strip() for line in given["starters"].splitlines() if line.strip()],
            "for_everyone": given["audience"] == EVERYONE,
            "portrait": given["picture"] and given["picture"].chunks(),
            **({"picture": ""} if given["removes_picture"] and not given["picture"] else {}),
            "uploads": [(name_of_upload(file.name), file.chunks()) for file in given["new_files"]],
            "people": [name.strip() for name in given["users"].replace("\n", ",").split(",") if name.strip()],
        }

    def refuse(self, error: MnesisError) -> None:
        shown_at = {"people": "users", "file": "new_files"}
        if error.details.get("field") == "picture":
            self.add_error("picture", gettext("Choose a complete PNG, JPEG, WebP or GIF file of at most 1 MB."))
        elif field := shown_at.get(str(error.details.get("field"))):
            self.add_error(field, error_text(error))
        else:
            super().refuse(error)


@signed_in
def assistant_list(request: HttpRequest) -> HttpResponse:
    """Return the page of all assistants, or with a cursor only the rows after it."""
    cursor = request.GET.get("cursor") or None
    found = list_assistants(user_id=reader_of(request), before=cursor, limit=PAGE + 1)
    page = page_of(found, PAGE, attrgetter("id"))
    context = {"assistants": page["items"], "next_cursor": page["next_cursor"] or "", "rows_path": request.path}
    return render(request, f"agents_app/assistants/{'_rows' if cursor else 'assistants'}.html", context)


@signed_in
def assistant_page(request: HttpRequest, assistant_id: str) -> HttpResponse:
    assistant = load_assistant(assistant_id, user_id=reader_of(request))
    choices = model_choices(request, preferred=assistant.model)
    context = choices | {
        "assistant": assistant,
        "versions": list_versions(assistant, user_id=reader_of(request)),
        "is_model_gone": bool(assistant.model) and assistant.model not in dict(choices["models"]),
        "facts": facts_of(assistant.config),
        "missing_tools": missing_tools(assistant.config, user_id=reader_of(request)),
    }
    return render(request, "agents_app/assistants/assistant.html", context)


@signed_in_to_change
def assistant_add(request: HttpRequest) -> HttpResponse:
    data = request.POST if request.method == "POST" else None
    form = AssistantForm(data, request.FILES, user_id=reader_of(request))
    if request.method == "POST" and form.is_valid():
        try:
            made = defaults.create_assistant(owner_id=reader_of(request), **form.values())
        except MnesisError as error:
            form.refuse(error)
        else:
            return to_page(request, "assistant", made.id)
    return render(request, "agents_app/assistants/form.html", {"form": form})


@signed_in_to_change
def assistant_change(request: HttpRequest, assistant_id: str) -> HttpResponse:
    owner = reader_of(request)
    assistant = assistant_store.load_own_assistant(assistant_id, owner_id=owner)
    data = request.POST if request.method == "POST" else None
    form = AssistantForm(data, request.FILES, user_id=owner, assistant=assistant)
    if request.method == "POST" and form.is_valid():
        try:
            removed = form.cleaned_data["removed_files"]
            changed = defaults.update_assistant(assistant.id, owner_id=owner, removed_files=removed, **form.values())
        except MnesisError as error:
            form.refuse(error)
        else:
            text = gettext("Saved.")
            if changed.version != assistant.version:
                text = gettext("Saved as version %(number)s.") % {"number": changed.version}
            messages.success(request, text)
            return to_page(request, "assistant", assistant.id)
    return render(request, "agents_app/assistants/form.html", {"form": form, "assistant": assistant})


@signed_in_to_post
def assistant_remove(request: HttpRequest, assistant_id: str) -> HttpResponse:
    assistant_store.remove_assistant(assistant_id, owner_id=reader_of(request))
    messages.success(request, _("The assistant is removed. Its sessions keep what they had."))
    return redirect("assistants")


# What a project says of sessions that begin in it, on its page, and the form in which its owner changes the project.


class ProjectForm(DefaultsForm):
    def __init__(self, data: Any = None, *, user_id: int, project: ProjectRecord) -> None:
        super().__init__(
            data,
            said=project,
            any_model=_("Each member's last used model"),
            told=_("Sent to the model before a session's own instructions, from the next message on."),
            user_id=user_id,
        )


@signed_in
def project_settings(request: HttpRequest, project_id: str) -> HttpResponse:
    """Return what the page of a project says of new chats, with what of it is gone for the reader."""
    reader = reader_of(request)
    project = load_project(project_id, user_id=reader)
    context = {
        "project": project,
        "facts": facts_of(project.config),
        "is_model_gone": project.model not in {"", *(spec.alias for spec in list_models(user_id=reader))},
        "missing_tools": missing_tools(project.config, user_id=reader),
    }
    return render(request, "agents_app/settings/_project.html", context)


@signed_in_to_change
def project_change(request: HttpRequest, project_id: str) -> HttpResponse:
    owner = reader_of(request)
    project = project_store.load_own_project(project_id, owner_id=owner)
    form = ProjectForm(request.POST if request.method == "POST" else None, user_id=owner, project=project)
    if request.method == "POST" and form.is_valid():
        try:
            defaults.update_project(project.id, owner_id=owner, **form.values())
        except MnesisError as error:
            form.refuse(error)
        else:
            messages.success(request, _("Saved."))
            return redirect("project", project.id)
    return render(request, "agents_app/settings/project_form.html", {"form": form, "project": project})
