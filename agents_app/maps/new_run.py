"""The form that starts a run: the items, the prompt for each of them, and what the run may use."""

from __future__ import annotations

import io
from decimal import Decimal
from pathlib import PurePath
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from agents_app.maps import service
from agents_app.maps.service import MapRequest
from files_app.intake import keep_file
from files_app.queries import load_file_reference
from mnesis_core.errors import (
    InvalidInput,
    InvalidRequest,
    InvalidSchema,
    InvalidTemplate,
    MnesisError,
    ModelNotFoundError,
)
from mnesis_core.files.references import name_of_upload
from mnesis_core.maps.tables import rows_as_lines
from mnesis_core.maps.values import OperatorKind, RunRecord
from mnesis_core.records import FileReference
from mnesis_core.spending import TurnLimits
from mnesis_core.text import read_json
from sessions_app.conf import list_models
from sessions_app.pages.formats import error_text, translated
from sessions_app.pages.views import reader_of, signed_in_to_change, to_page

MICROS = 1_000_000
TABLES = (".csv", ".tsv")
MODEL_GONE = _("This model no longer exists or is not available to you.")


class RunForm(forms.Form):
    """What a person asks of each item. The items are a file that is there already, a new one, or lines that are typed."""

    new_file = forms.FileField(
        required=False,
        allow_empty_file=True,
        label=_("File with the items"),
        help_text=_("JSON Lines: a JSON value on each line. Or CSV, whose first row names the columns."),
        widget=forms.FileInput(attrs={"accept": ".jsonl,.ndjson,.csv,.tsv,.txt,.json"}),
    )
    lines = forms.CharField(
        required=False,
        label=_("Or the items themselves"),
        help_text=_("One per line: a JSON value, or any text."),
        widget=forms.Textarea(attrs={"rows": 3, "dir": "auto", "class": "input"}),
    )
    template = forms.CharField(
        strip=False,
        label=_("Prompt for each item"),
        help_text=_("{{ item.name }} stands for the value of “name” in an item, {{ item }} for all of it."),
        widget=forms.Textarea(
            attrs={"rows": 4, "dir": "auto", "class": "input", "placeholder": "Is this review kind? {{ item.text }}"}
        ),
    )
    kind = forms.ChoiceField(
        choices=[
            (OperatorKind.LLM.value, _("A model, with one call for each item")),
            (OperatorKind.AGENTIC.value, _("A sub-agent with tools, for each item")),
        ],
        initial=OperatorKind.LLM.value,
        widget=forms.RadioSelect,
        label=_("Who answers"),
    )
    may_write = forms.BooleanField(
        required=False,
        label=_("Sub-agents may use tools that change something"),
        help_text=_("Otherwise they are only offered tools that read."),
    )
    model = forms.ChoiceField(required=False, label=_("Model"), widget=forms.Select(attrs={"class": "input"}))
    schema = forms.CharField(
        required=False,
        label=_("Schema of results"),
        help_text=_("A JSON Schema that each answer must fit. Without one, any text is a result."),
        widget=forms.Textarea(attrs={"rows": 4, "dir": "ltr", "class": "input", "spellcheck": "false"}),
    )
    system_prompt = forms.CharField(
        required=False,
        strip=False,
        label=_("System prompt"),
        widget=forms.Textarea(attrs={"rows": 3, "dir": "auto", "class": "input"}),
    )
    concurrency = forms.IntegerField(
        required=False,
        min_value=1,
        label=_("Items at a time"),
        widget=forms.NumberInput(attrs={"class": "input", "placeholder": _("Default")}),
    )
    cost = forms.DecimalField(
        required=False,
        min_value=Decimal(1) / MICROS,
        max_value=1_000_000,
        decimal_places=6,
        label=_("Cost in dollars"),
        help_text=_("The run pauses when it has spent this much."),
        widget=forms.NumberInput(attrs={"class": "input", "placeholder": _("No limit")}),
    )

    def __init__(self, data: Any, files: Any, *, user_id: int, file_id: str) -> None:
        """:raises FileReferenceNotFoundError: the person has no such file."""
        super().__init__(data, files)
        self.user_id = user_id
        self.file = load_file_reference(file_id, owner_id=user_id) if file_id else None
        aliases = [spec.alias for spec in list_models(user_id=user_id)]
        default = _("The session's model") if self.file else _("The site's default")
        choices = [("", default), *((alias, alias) for alias in aliases)]
        self.fields["model"].choices = choices  # type: ignore[attr-defined]

    def clean_schema(self) -> Any:
        text = self.cleaned_data["schema"].strip()
        try:
            schema = read_json(text) if text else None
        except InvalidRequest as error:
            said = [translated(value) for value in error.values.values() if isinstance(value, str)]
            reason = " ".join(said) or gettext("it is nested too deeply")
            raise forms.ValidationError(gettext("The schema is not JSON: %(reason)s.") % {"reason": reason}) from None
        if schema is not None and not isinstance(schema, dict):
            raise forms.ValidationError(gettext("A schema is a JSON object."))
        return schema

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if not (given.get("new_file") or given.get("lines") or self.file):
            self.add_error("new_file", gettext("Choose a file, or type the items below."))
        elif given.get("new_file") and given.get("lines"):
            self.add_error("lines", gettext("Choose a file or type the items, not both."))
        return given

    def start(self) -> RunRecord:
        """Start the run; only of a valid form. A new file is kept even if the run is refused, and ``file`` is that."""
        given = self.cleaned_data
        is_agentic = given["kind"] == OperatorKind.AGENTIC
        asked = {
            "kind": OperatorKind(given["kind"]),
            "template": given["template"].replace("\r\n", "\n"),
            "schema": given["schema"],
            "model": given["model"],
            "system_prompt": given["system_prompt"].replace("\r\n", "\n"),
            "concurrency": given["concurrency"],
            "read_only": not (is_agentic and given["may_write"]),
            "limits": TurnLimits(cost_micros=None if given["cost"] is None else int(given["cost"] * MICROS)),
        }
        if given["lines"]:
            return service.start(MapRequest(**asked, items=items_of(given["lines"])), owner_id=self.user_id)
        if given["new_file"]:
            service.check_texts(MapRequest(**asked))
            self.file = self._keep(given["new_file"])
        file_id = self.file.id if self.file else None
        return service.start(MapRequest(**asked, file_id=file_id), owner_id=self.user_id)

    def _keep(self, uploaded: Any) -> FileReference:
        name = PurePath(name_of_upload(uploaded.name))
        session_id = self.file.session_id if self.file else None
        is_table = name.suffix.lower() in TABLES
        return keep_file(
            session_id,
            owner_id=self.user_id,
            path=str(name.with_suffix(".jsonl") if is_table else name),
            chunks=rows_as_lines(io.TextIOWrapper(uploaded.file, "utf-8-sig", newline=""))
            if is_table
            else uploaded.chunks(),
        )

    def refuse(self, error: MnesisError) -> None:
        named = str(error.details.get("field"))
        if isinstance(error, ModelNotFoundError):
            self.add_error("model", MODEL_GONE)
        elif isinstance(error, InvalidTemplate):
            self.add_error("template", error_text(error))
        elif isinstance(error, InvalidSchema):
            self.add_error("schema", error_text(error))
        elif isinstance(error, InvalidInput):
            self.add_error("lines" if self.cleaned_data["lines"] else "new_file", error_text(error))
        else:
            self.add_error(named if named in self.fields else None, error_text(error))


def items_of(text: str) -> list[Any]:
    """Return what each line says that is not blank: as JSON if it is that, else as a text."""
    return [_item_of(line.strip()) for line in text.split("\n") if line.strip()]


def _item_of(line: str) -> Any:
    try:
        return read_json(line)
    except InvalidRequest:
        return line


@signed_in_to_change
def run_add(request: HttpRequest) -> HttpResponse:
    """Show the form; ``file`` in the address, or in the form, is the id of the file with the items."""
    is_sent = request.method == "POST"
    sent = (request.POST, request.FILES) if is_sent else (None, None)
    file_id = (request.POST if is_sent else request.GET).get("file", "")
    form = RunForm(*sent, user_id=reader_of(request), file_id=file_id)
    if form.is_valid():
        try:
            return to_page(request, "run", form.start().id)
        except MnesisError as error:
            form.refuse(error)
    return render(request, "agents_app/runs/form.html", {"form": form})
