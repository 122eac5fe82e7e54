"""The page on which a session's owner says what its model is told, how it is asked, and what it may use and spend."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict
from decimal import Decimal
from itertools import groupby
from typing import Any

from django import forms
from django.contrib import messages
from django.forms.boundfield import BoundWidget
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.formats import localize
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from agents_app.tools.registry import EVERY, SHIPPED, list_tools
from agents_app.turns import lifecycle
from mnesis_core.config import BOUNDS, LONGEST_INSTRUCTIONS
from mnesis_core.errors import MnesisError, ModelNotFoundError
from mnesis_core.llm.parameters import EFFORTS, PROVIDER_TOOLS, VERBOSITIES, read_stored
from mnesis_core.records import AssistantRecord, ProjectRecord, SessionRecord
from mnesis_core.text import printable_json
from mnesis_core.turns.mcp_servers import SEPARATOR
from mnesis_core.turns.questions import ASK_USER
from sessions_app.conf import instructions_of, list_models, session_config, site_config
from sessions_app.pages.formats import error_text, format_money, format_number
from sessions_app.pages.views import reader_of, signed_in_to_change
from sessions_app.record.session_queries import load_session

PLACES = {
    "effort": "parameters.effort",
    "verbosity": "parameters.verbosity",
    "temperature": "parameters.temperature",
    "provider_tools": "parameters.provider_tools",
    "max_output_tokens": "max_output_tokens",
    "max_steps": "turn.max_steps",
    "read_only": "turn.read_only",
    "tools": "turn.tools",
    "ask_before": "turn.ask_before",
    "tokens": "limits.session.tokens",
    "cost": "limits.session.cost_micros",
    "instructions": "instructions",
}
"""Where a session's configuration has what a field of the form says."""
SITE, OWN = "site", "own"
MICROS = 1_000_000
DEFAULT = _("Model default")
LEVELS = {
    "none": pgettext_lazy("level", "None"),
    "minimal": pgettext_lazy("level", "Minimal"),
    "low": pgettext_lazy("level", "Low"),
    "medium": pgettext_lazy("level", "Medium"),
    "high": pgettext_lazy("level", "High"),
    "xhigh": pgettext_lazy("level", "Xhigh"),
    "max": pgettext_lazy("level", "Max"),
}
TOOLS_OF_PROVIDERS = {
    "web_search": _("Web search"),
    "code_execution": _("Code execution"),
    "image_generation": _("Image generation"),
}


def value_at(config: Mapping[str, Any], place: str) -> Any:
    """Return what a configuration says at a place such as ``turn.tools``; ``None`` if it says nothing."""
    value: Any = config
    for name in place.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def with_values(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with other values at some places; ``None`` leaves a place to the site."""
    changed = deepcopy(dict(config))
    for place, value in values.items():
        *path, name = place.split(".")
        section = changed
        for step in path:
            inner = section.get(step)
            section[step] = section = inner if isinstance(inner, dict) else {}
        if value is None:
            section.pop(name, None)
        else:
            section[name] = value
    return _without_empty(changed)


def _without_empty(config: dict[str, Any]) -> dict[str, Any]:
    pruned = {name: _without_empty(value) if isinstance(value, dict) else value for name, value in config.items()}
    return {name: value for name, value in pruned.items() if value != {}}


def _whole(place: str, label: Any, help_text: Any = "", *, default: Any = "") -> forms.IntegerField:
    least, most = BOUNDS[place]
    attrs = {"placeholder": default} if default else {}
    return forms.IntegerField(
        required=False,
        min_value=max(1, int(least)),
        max_value=int(most),
        label=label,
        help_text=help_text,
        widget=forms.NumberInput(attrs=attrs),
    )


class ConfigForm(forms.Form):
    """What a person says of how a session's model is told and asked, and what it may use and spend."""

    instructions = forms.CharField(
        required=False,
        strip=False,
        max_length=LONGEST_INSTRUCTIONS,
        widget=forms.Textarea(attrs={"rows": 8, "dir": "auto"}),
        label=_("Instructions"),
        help_text=_("Sent to the model at the start of every prompt: who it is, how to answer, what to keep in mind."),
    )
    effort = forms.ChoiceField(
        required=False,
        choices=[("", DEFAULT), *((name, LEVELS[name]) for name in EFFORTS)],
        label=_("Effort"),
        help_text=_("How much the model thinks before it answers, if it supports that."),
    )
    verbosity = forms.ChoiceField(
        required=False,
        choices=[("", DEFAULT), *((name, LEVELS[name]) for name in VERBOSITIES)],
        label=_("Length of answers"),
        help_text=_("Not every model supports this."),
    )
    temperature = forms.FloatField(
        required=False,
        min_value=0,
        max_value=2,
        label=_("Temperature"),
        help_text=_("Lower is more predictable. Reasoning models ignore it."),
        widget=forms.NumberInput(attrs={"step": "0.1", "placeholder": DEFAULT}),
    )
    max_output_tokens = _whole("max_output_tokens", _("Longest answer"), _("Tokens."), default=DEFAULT)
    tools_from = forms.ChoiceField(
        choices=[(SITE, _("Default tools of this site")), (OWN, _("Only the tools chosen here"))],
        widget=forms.RadioSelect,
        label=_("Tools"),
    )
    tools = forms.MultipleChoiceField(required=False, widget=forms.CheckboxSelectMultiple, label=_("Chosen tools"))
    read_only = forms.BooleanField(
        required=False, label=_("Read-only tools only"), help_text=_("Tools that write or send are not available.")
    )
    ask_before = forms.MultipleChoiceField(
        required=False,
        widget=forms.CheckboxSelectMultiple,
        label=_("Ask me before"),
        help_text=_("The session waits for your approval before each call of these tools."),
    )
    provider_tools = forms.MultipleChoiceField(
        required=False,
        choices=[(name, TOOLS_OF_PROVIDERS[name]) for name in PROVIDER_TOOLS],
        widget=forms.CheckboxSelectMultiple,
        label=_("Tools that the provider runs"),
        help_text=_("Used only where the model's entry permits them."),
    )
    max_steps = _whole("turn.max_steps", _("Model calls per turn"))
    tokens = _whole("limits.session.tokens", _("Tokens"))
    cost = forms.DecimalField(
        required=False,
        min_value=Decimal(1) / MICROS,
        max_value=BOUNDS["limits.session.cost_micros"][1] // MICROS,
        decimal_places=6,
        label=_("Cost in dollars"),
    )

    def __init__(self, data: Any, *, own: dict[str, Any], instructions: str, user_id: int, **initially: Any) -> None:
        """Show what a configuration says (``own``), and the tools that a person has."""
        self.own = own
        config = session_config(self.own)
        # An import may bring values that no version understood: the form shows what they come to.
        valid = asdict(config) | {"parameters": read_stored(config.parameters).as_dict()}
        said = {name: place for name, place in PLACES.items() if value_at(self.own, place) is not None}
        initial = initially | dict.fromkeys(PLACES) | {name: value_at(valid, place) for name, place in said.items()}
        initial["instructions"] = instructions
        initial["tools_from"] = SITE if initial["tools"] is None else OWN
        initial["tools"] = list(config.turn.tools)
        initial["ask_before"] = list(config.turn.ask_before)
        initial["read_only"] = config.turn.read_only
        if initial["cost"]:
            initial["cost"] = f"{initial['cost'] / MICROS:.10g}"
        initial = printable_json(initial)
        super().__init__(data, initial=initial)
        self._tools = {tool.spec.name: tool for tool in list_tools(user_id=user_id)}
        every = sorted({tool.source + SEPARATOR + EVERY for tool in self._tools.values() if tool.source != SHIPPED})
        names = dict.fromkeys((*self._tools, *every, *initial["tools"]))
        self.fields["tools"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
        free = [name for name, tool in self._tools.items() if not tool.needs_approval and name != ASK_USER]
        asked = dict.fromkeys((*free, *initial["ask_before"]))
        self.fields["ask_before"].choices = [(name, name) for name in asked]  # type: ignore[attr-defined]
        limits = site_config().limits.session
        self.fields["max_steps"].widget.attrs["placeholder"] = format_number(site_config().turn.max_steps)
        self.fields["tokens"].widget.attrs["placeholder"] = (
            format_number(limits.tokens) if limits.tokens else _("No limit")
        )
        self.fields["cost"].widget.attrs["placeholder"] = (
            f"{limits.cost_micros / MICROS:.10g}" if limits.cost_micros else _("No limit")
        )
        for field in self.fields.values():
            if not isinstance(field.widget, (forms.RadioSelect, forms.CheckboxSelectMultiple, forms.CheckboxInput)):
                field.widget.attrs["class"] = "input"

    def tool_groups(self) -> list[tuple[str, list[tuple[BoundWidget, str]]]]:
        """Return the tools by who brings them, each with what it is for."""
        boxes = [(str(box.data["value"]), box) for box in self["tools"]]
        described = [(self._source(name), box, self._about(name)) for name, box in boxes]
        built_in = gettext("Built in")
        described.sort(key=lambda row: (row[0] != built_in, row[0]))
        return [(source, [row[1:] for row in rows]) for source, rows in groupby(described, key=lambda row: row[0])]

    def _source(self, name: str) -> str:
        if name in self._tools and self._tools[name].source == SHIPPED:
            return gettext("Built in")
        return name.partition(SEPARATOR)[0] if SEPARATOR in name else gettext("Not available")

    def _about(self, name: str) -> str:
        if name.endswith(EVERY):
            return gettext("All tools of this server, also those that it adds later.")
        if name not in self._tools:
            return gettext("Not available any more.")
        return self._tools[name].summary

    def clean_instructions(self) -> str:
        return str(self.cleaned_data["instructions"]).replace("\r\n", "\n")

    def changed_config(self) -> dict[str, Any]:
        """Return the session's configuration as the form has it; only of a valid form. What it does not show stays."""
        given = self.cleaned_data
        said: dict[str, Any] = {name: given[name] or None for name in PLACES}
        said["temperature"] = given["temperature"]
        said["tools"] = given["tools"] if given["tools_from"] == OWN else None
        default = set(given["ask_before"]) == set(site_config().turn.ask_before)
        said["ask_before"] = None if default else given["ask_before"]
        said["cost"] = None if given["cost"] is None else int(given["cost"] * MICROS)
        said["read_only"] = None if given["read_only"] == site_config().turn.read_only else given["read_only"]
        said["instructions"] = self.changed_instructions(given["instructions"])
        return with_values(self.own, {place: said[name] for name, place in PLACES.items()})

    def changed_instructions(self, told: str) -> str | None:
        """Return what the configuration itself has of the instructions."""
        return None

    def refuse(self, error: MnesisError) -> None:
        names = {name: name for name in self.fields} | {place: name for name, place in PLACES.items()}
        self.add_error(names.get(str(error.details.get("field"))), error_text(error))


class DefaultsForm(ConfigForm):
    """What an assistant's or a project's owner says of it, and of sessions that begin with it."""

    name = forms.CharField(max_length=1_000, label=_("Name"), widget=forms.TextInput(attrs={"dir": "auto"}))
    model = forms.ChoiceField(required=False, label=_("Model"))

    def __init__(
        self,
        data: Any,
        *,
        said: AssistantRecord | ProjectRecord | None,
        any_model: Any,
        told: Any,
        user_id: int,
        **initially: Any,
    ) -> None:
        """:param any_model: in words, the model of sessions where no other is chosen here
        :param told: in words, when the model is told the instructions
        """
        model = said.model if said else ""
        super().__init__(
            data,
            own=said.config if said else {},
            instructions=said.instructions if said else "",
            user_id=user_id,
            name=said.name if said else "",
            model=model,
            **initially,
        )
        self.fields["instructions"].help_text = told
        models = dict.fromkeys((*(spec.alias for spec in list_models(user_id=user_id)), *([model] if model else ())))
        choices = [("", any_model), *((alias, alias) for alias in models)]
        self.fields["model"].choices = choices  # type: ignore[attr-defined]

    def values(self) -> dict[str, Any]:
        """Return name, instructions, model and configuration; only of a valid form."""
        given = {name: self.cleaned_data[name] for name in ("name", "instructions", "model")}
        return given | {"config": self.changed_config()}

    def refuse(self, error: MnesisError) -> None:
        if isinstance(error, ModelNotFoundError):
            self.add_error("model", gettext("This model no longer exists or is not available to you."))
        else:
            super().refuse(error)


def facts_of(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a configuration says, as the form does: labels and values."""
    said = [(name, value_at(config, place)) for name, place in PLACES.items()]
    return [(_label(name), _in_words(name, value)) for name, value in said if value is not None]


def _label(name: str) -> str:
    return str(ConfigForm.base_fields["tools_from" if name == "tools" else name].label)


def _in_words(name: str, value: Any) -> str:
    words = dict(getattr(ConfigForm.base_fields[name], "choices", ()))
    if isinstance(value, bool):
        return gettext("Yes") if value else gettext("No")
    if isinstance(value, list):
        return ", ".join(str(words.get(each, each)) for each in value) or gettext("None")
    if name == "cost":
        return format_money(value)
    return format_number(value) if isinstance(value, int) else str(words.get(value, localize(value)))


class SettingsForm(ConfigForm):
    def __init__(self, data: Any = None, *, session: SessionRecord) -> None:
        self.session = session
        told = instructions_of(session)
        super().__init__(data, own=session.config, instructions=told, user_id=session.owner_id)

    def changed_instructions(self, told: str) -> str | None:
        if told == instructions_of(self.session).replace("\r\n", "\n"):
            return self.own.get("instructions")
        return None if told == self.session.system_prompt else told


@signed_in_to_change
def session_settings(request: HttpRequest, session_id: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    form = SettingsForm(request.POST if request.method == "POST" else None, session=session)
    if request.method == "POST" and form.is_valid():
        try:
            lifecycle.update_session(session.id, owner_id=session.owner_id, config=form.changed_config())
        except MnesisError as error:
            form.refuse(error)
        else:
            messages.success(request, _("Settings saved. They apply from the next message."))
            return redirect("session", session.id)
    context = {"form": form, "session": session}
    return render(request, "agents_app/settings/session.html", context)
