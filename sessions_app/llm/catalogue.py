"""The pages of models, and the forms in which administrators enter models and tool servers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlsplit

from django import forms
from django.contrib import messages
from django.contrib.auth.models import Group, User
from django.core.validators import RegexValidator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.text import capfirst, format_lazy
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from mnesis_core.errors import InvalidRequest, ModelNotFoundError, NotListed, reason_of
from mnesis_core.llm.caching import LIFETIMES
from mnesis_core.llm.interface import LimitSource, ModelSpec, settle_limits
from mnesis_core.llm.parameters import DEEPEST_PARAMETERS, KEPT_NAMES
from mnesis_core.network.hosts import ADDRESSES, PROGRAMS, VARIABLES, HostLists
from mnesis_core.providers.credentials import provider_of
from mnesis_core.providers.litellm_ import list_known_models
from mnesis_core.text import encode_text, exact_value, excerpt
from sessions_app.conf import host_lists, list_models
from sessions_app.llm import model_store
from sessions_app.pages.formats import error_text, localised, translated
from sessions_app.pages.kept_texts import kept_error_text
from sessions_app.pages.permissions import administrators, may_administer
from sessions_app.pages.views import reader_of, signed_in

EVERYBODY, NAMED = "everybody", "named"
ADD, CHANGE, REMOVE = (f"sessions_app.{verb}_languagemodel" for verb in ("add", "change", "delete"))
NAME_LENGTH = 60
BY_COMMAND = _("Anything else can be entered by a command on the host.")
PRICES = ("input", "output", "cache_read", "cache_write", "cache_write_1h")
_PRICE: dict[str, Any] = {"required": False, "min_value": 0, "max_value": model_store.LARGEST_PRICE}
_ABILITY: dict[str, Any] = {
    "choices": [("", _("As stated by litellm")), ("yes", _("Yes")), ("no", _("No"))],
    "required": False,
    "coerce": lambda value: value == "yes",
    "empty_value": None,
}
ENTERED = (
    *("litellm_model", "api_base", "context_window", "max_output_tokens", "timeout_seconds", "total_timeout_seconds"),
    *("takes_pictures", "takes_documents", "takes_audio", "through_gateway", "fallbacks", "parameters", "cache"),
)
REACHED = ("litellm_model", "api_base", "api_key_env")
SECRETS = ("key", "api_key_env", "api_base")
"""The fields where a key may be entered by mistake. A refused value is not shown again."""
PROVIDERS = (
    ("openai", "OpenAI"),
    ("anthropic", "Anthropic"),
    ("gemini", "Google Gemini"),
    ("deepseek", "DeepSeek"),
    ("groq", "Groq"),
    ("mistral", "Mistral"),
    ("openrouter", "OpenRouter"),
    ("xai", "xAI"),
    ("ollama_chat", "Ollama"),
)
"""Those that the form offers by name, as litellm calls them. Any other can be written in front of the model."""
VARIABLE = RegexValidator(
    r"\A[A-Z_][A-Z0-9_]*\Z",
    _("Enter the name of an environment variable, such as OPENAI_API_KEY. Enter the key itself in the field above."),
)
KEY = RegexValidator(r"\A[!-~]+\Z", _("A key can contain only ASCII letters, digits and symbols, without spaces."))
ALIAS = RegexValidator(
    r"\A[A-Za-z0-9][A-Za-z0-9._:/@+-]*\Z",
    _("Use only letters, digits and . _ : / @ + -, with a letter or digit in front."),
)


class AudienceFields(forms.Form):
    """Who may use a model or a server, at the end of a form. Its subclasses call ``check_audience`` in ``clean``."""

    audience = forms.ChoiceField(
        choices=[(EVERYBODY, _("Everyone")), (NAMED, _("Only these groups and people"))],
        initial=EVERYBODY,
        widget=forms.RadioSelect,
        label=_("Who can use it"),
        help_text=_("Others do not see it. Superusers can always use it."),
    )
    groups = forms.MultipleChoiceField(required=False, widget=forms.CheckboxSelectMultiple, label=_("Groups"))
    users = forms.CharField(
        required=False,
        max_length=10_000,
        widget=forms.Textarea(attrs={"rows": 2}),
        label=_("People"),
        help_text=_("Usernames, separated by commas or lines."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._groups = {group.name: group for group in Group.objects.order_by("name")}
        self.fields["groups"].choices = [(name, name) for name in self._groups]  # type: ignore[attr-defined]

    def clean_users(self) -> list[User]:
        names = set(names_in(self.cleaned_data["users"].replace("\n", ",")))
        found = model_store.find_users(names)
        missing = {encode_text(name) for name in names} - {user.get_username() for user in found}
        if missing:
            raise forms.ValidationError(
                gettext("No account is called %(names)s.") % {"names": ", ".join(sorted(missing))}
            )
        return found

    def check_audience(self, values: dict[str, Any]) -> None:
        if values.get("audience") == NAMED and not self.errors and not (values["groups"] or values["users"]):
            self.add_error("audience", _("Name a group or a person, or let everyone use it."))

    @property
    def chosen_audience(self) -> model_store.Audience | None:
        """Return whom it is for, or ``None`` for everyone; only of a valid form."""
        values = self.cleaned_data
        if values["audience"] == EVERYBODY:
            return None
        return model_store.Audience(groups=[self._groups[name] for name in values["groups"]], users=values["users"])


def audience_initial(*, is_restricted: bool, groups: Sequence[str], users: Sequence[str]) -> dict[str, Any]:
    return {"audience": NAMED if is_restricted else EVERYBODY, "groups": list(groups), "users": ", ".join(users)}


def forget_refused(form: forms.BaseForm, names: Iterable[str]) -> None:
    """Empty the fields that were refused, so that a secret entered by mistake is not sent back to the screen."""
    refused = [name for name in names if name in form.errors]
    if not refused:
        return
    data: Any = form.data
    form.data = kept = data.copy()
    for name in refused:
        kept[form.add_prefix(name)] = ""


def names_in(text: str) -> list[str]:
    return [name for name in map(str.strip, text.split(",")) if name]


def offer_variables(field: forms.Field, lists: HostLists, *, current: str = "") -> None:
    """Let one of the listed variables be chosen. One that a command entered stays available."""
    places: dict[str, list[str]] = {}
    for variable in lists.variables:
        places.setdefault(variable.name, []).append(variable.origin or gettext("the provider's own address"))
    text = gettext("%(variable)s, for %(addresses)s")
    choices = [(name, text % {"variable": name, "addresses": ", ".join(to)}) for name, to in places.items()]
    _offer(field, choices, current=current, nothing=gettext("none"))
    _say_listed(
        field, VARIABLES, nothing=gettext("No variable is listed on this host (%(setting)s)."), is_empty=not choices
    )


def say_variables(field: forms.Field, lists: HostLists) -> None:
    listed = ", ".join(map(str, lists.variables))
    nothing = gettext("No variable is listed on this host (%(setting)s).")
    _say_listed(field, VARIABLES, nothing=nothing, listed=listed, is_empty=not listed)


def offer_programs(field: forms.Field, lists: HostLists, *, current: str = "") -> None:
    """Offer the listed programs as choices, or name them in the help text where arguments may follow."""
    entries = [str(program) for program in lists.programs]
    if entries and not any(program.takes_more for program in lists.programs):
        choices = [(entry, entry) for entry in entries]
        _offer(field, choices, current=current, nothing=gettext("none: the server has an address"))
        entries = []
    nothing = gettext("No program is listed on this host (%(setting)s).")
    _say_listed(field, PROGRAMS, nothing=nothing, listed="; ".join(entries), is_empty=not lists.programs)


def say_addresses(field: forms.Field, lists: HostLists) -> None:
    listed = ", ".join(map(str, lists.addresses))
    inside = gettext("Only public addresses are allowed: %(setting)s lists no others.")
    if listed:
        inside = gettext("Allowed inside this network (%(setting)s): %(addresses)s.")
    field.help_text = f"{field.help_text} {inside % {'setting': ADDRESSES, 'addresses': listed}}"


def _offer(field: forms.Field, choices: list[tuple[str, str]], *, current: str, nothing: str) -> None:
    if not choices:
        return
    kept = (
        [(current, gettext("%(choice)s (current)") % {"choice": current})]
        if current and current not in dict(choices)
        else []
    )
    field.widget = forms.Select(choices=[("", nothing), *kept, *choices])


def _say_listed(field: forms.Field, setting: str, *, nothing: str, listed: str = "", is_empty: bool) -> None:
    said = nothing
    if not is_empty:
        said = gettext("The choices are listed in %(setting)s.")
        said = gettext("Listed on this host (%(setting)s): %(listed)s.") if listed else said
    field.help_text = f"{field.help_text} {said % {'setting': setting, 'listed': listed}} {BY_COMMAND}"


class ModelForm(AudienceFields):
    alias = forms.CharField(
        max_length=100,
        validators=[ALIAS],
        label=_("Name"),
        help_text=_("What people choose. It cannot be changed later: sessions refer to it."),
    )
    litellm_model = forms.CharField(
        max_length=200,
        label=_("Model"),
        widget=forms.TextInput(attrs={"list": "known-models", "autocomplete": "off", "spellcheck": "false"}),
        help_text=_(
            "The name that litellm uses, such as openai/gpt-4o, anthropic/claude-sonnet-4-5 or ollama_chat/llama3."
        ),
    )
    api_base = forms.CharField(
        max_length=500,
        required=False,
        label=_("Address"),
        help_text=_("Only for a server of your own. For an OpenAI-compatible server, include /v1."),
    )
    api_key_env = forms.CharField(
        max_length=100,
        required=False,
        validators=[VARIABLE],
        label=_("Environment variable"),
        help_text=_(
            "Instead of a key: the environment variable that holds it, set for the web server and the workers."
        ),
    )
    key = forms.CharField(
        max_length=1_000,
        required=False,
        validators=[KEY],
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        label=_("Key"),
        help_text=_("Stored encrypted, for this provider and address only, and never shown again."),
    )
    forget_key = forms.BooleanField(required=False, label=_("Remove the stored key"))
    context_window = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=model_store.MOST_TOKENS,
        label=_("Window"),
        help_text=_("Tokens, prompt and answer together. If empty, taken from litellm's table or assumed."),
    )
    max_output_tokens = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=model_store.MOST_TOKENS,
        label=_("Longest answer"),
        help_text=_("Tokens. If empty, as above."),
    )
    takes_pictures = forms.TypedChoiceField(
        **_ABILITY, label=_("Takes pictures"), help_text=_("If not, it gets a description of each picture instead.")
    )
    takes_documents = forms.TypedChoiceField(
        **_ABILITY, label=_("Takes PDFs"), help_text=_("If not, it gets a summary of each PDF instead.")
    )
    takes_audio = forms.TypedChoiceField(
        **_ABILITY, label=_("Takes audio"), help_text=_("If not, it gets only the name of each recording.")
    )
    through_gateway = forms.BooleanField(
        required=False,
        label=_("Through the gateway"),
        help_text=_("Requests from programs are recorded and passed to the provider unchanged."),
    )
    input_price = forms.FloatField(**_PRICE, label=_("Prompt"))
    output_price = forms.FloatField(**_PRICE, label=_("Answer"))
    cache_read_price = forms.FloatField(**_PRICE, label=_("Cached prompt"))
    cache_write_price = forms.FloatField(**_PRICE, label=_("Newly cached"))
    cache_write_1h_price = forms.FloatField(**_PRICE, label=_("Cached for an hour"))
    timeout_seconds = forms.FloatField(
        initial=120,
        min_value=1,
        max_value=model_store.LONGEST_SECONDS,
        label=_("Longest silence"),
        help_text=_("The most seconds without output before a call is stopped."),
    )
    total_timeout_seconds = forms.FloatField(
        initial=1800,
        min_value=1,
        max_value=model_store.LONGEST_SECONDS,
        label=_("Longest call"),
        help_text=_("The most seconds for the whole call, retries included."),
    )
    fallbacks = forms.CharField(
        required=False,
        max_length=1_000,
        label=_("Fallbacks"),
        help_text=_("Models to try, in this order, when this one gives no answer. Names separated by commas."),
    )
    cache = forms.ChoiceField(
        choices=[("off", pgettext_lazy("caching of prompts", "Off")), ("5m", _("5 minutes")), ("1h", _("1 hour"))],
        initial=LIFETIMES[1],
        required=False,
        label=_("Prompt caching"),
        help_text=_(
            "How long Claude caches a prompt after its last use, so that the next call pays only for what is new. "
            "One hour costs more to write. Other providers decide by themselves."
        ),
    )

    parameters = forms.CharField(
        required=False,
        max_length=70_000,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        label=_("Parameters"),
        help_text=format_lazy(
            "{} {}",
            _('Defaults that sessions and turns can override, such as {"temperature": 0.2, "effort": "low"}.'),
            format_lazy(_("Known: {names}."), names=", ".join(KEPT_NAMES)),
        ),
    )

    def __init__(self, data: Any = None, *, entry: model_store.ModelEntry | None = None) -> None:
        super().__init__(data, initial={} if entry is None else _initial(entry))
        self.entry = entry
        if entry is not None:
            del self.fields["alias"]
        if entry is not None and entry.sealed_key:
            self.fields["key"].help_text = _("A key is stored. Leave this empty to keep it.")
        else:
            del self.fields["forget_key"]
        lists = host_lists()
        offer_variables(self.fields["api_key_env"], lists, current="" if entry is None else entry.api_key_env)
        say_addresses(self.fields["api_base"], lists)
        for field in self.fields.values():
            if not isinstance(field.widget, (forms.RadioSelect, forms.CheckboxSelectMultiple)):
                field.widget.attrs["class"] = "input"

    def clean_alias(self) -> str:
        alias = str(self.cleaned_data["alias"])
        known = model_store.find_model_entry(alias)
        if known is not None and not known.is_shipped:
            raise forms.ValidationError(_("A model with this name already exists. Change or remove it instead."))
        return alias

    def clean_api_base(self) -> str:
        url = str(self.cleaned_data["api_base"])
        if not url:
            return url
        try:
            parts = urlsplit(url)
            is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_good = False
        if not is_good or not url.isprintable() or " " in url:
            raise forms.ValidationError(_("Enter an http or https address, such as http://127.0.0.1:11434/v1."))
        if parts.username or parts.password or parts.query:
            raise forms.ValidationError(_("The address must not contain a password or key. Use the key field instead."))
        return url

    def clean_cache(self) -> str:
        return str(self.cleaned_data["cache"]) or LIFETIMES[1]

    def clean_fallbacks(self) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(names_in(self.cleaned_data["fallbacks"])))
        missing = set(names) - {spec.alias for spec in list_models(user_id=None)}
        if missing:
            raise forms.ValidationError(
                gettext("No model is called %(names)s.") % {"names": ", ".join(sorted(missing))}
            )
        return names

    def clean_parameters(self) -> dict[str, Any]:
        text = self.cleaned_data["parameters"]
        try:
            values = exact_value(text, deepest=DEEPEST_PARAMETERS) if text else {}
        except ValueError as error:
            raise forms.ValidationError(
                gettext("Enter a JSON object: %(problem)s.") % {"problem": translated(reason_of(error))}
            ) from None
        if not isinstance(values, dict):
            raise forms.ValidationError(_('Enter a JSON object, such as {"temperature": 0.2}.'))
        return values

    @property
    def entered_key(self) -> str | None:
        """Return the key to store; empty for none, and ``None`` for the one that is stored. Only of a valid form."""
        values = self.cleaned_data
        if values["key"]:
            return str(values["key"])
        return "" if values["api_key_env"] or values.get("forget_key") else None

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        self.check_audience(values)
        if values.get("key") and values.get("api_key_env"):
            self.add_error("key", _("Enter either a key or an environment variable, not both."))
        if self.errors:
            forget_refused(self, SECRETS)
            return values
        known = None if self.entry is None else self.entry.spec
        try:
            spec = model_store.settle_model(
                alias=values["alias"] if known is None else known.alias,
                prices=model_store.EnteredPrices(**{name: values[f"{name}_price"] for name in PRICES}),
                **{name: values[name] for name in ENTERED},
            )
        except InvalidRequest as error:
            field = str(error.details["field"]).partition(".")[0]
            self.add_error(field, f"{capfirst(error_text(error).removesuffix('.'))}.")
        else:
            if spec.max_output_tokens > spec.context_window:
                self.add_error("max_output_tokens", _("The longest answer must fit in the context window."))
            # The learnt token ratio belongs to one model of the provider.
            ratio = known.shared_ratio if known and known.litellm_model == spec.litellm_model else None
            values["spec"] = replace(spec, shared_ratio=ratio)
            check_reached(self, spec.alias, values)
            if self.entry is not None and not model_store.keeps_key(self.entry, spec) and self.entered_key is None:
                self.add_error("key", _("The stored key was for another provider or address. Enter the key again."))
        forget_refused(self, SECRETS)
        return values


def _initial(entry: model_store.ModelEntry) -> dict[str, Any]:
    """Return what the form of an entry begins with: what people stated, and not what a table or a default says."""
    spec, stated, chosen = entry.spec, LimitSource.CONFIGURED, {True: "yes", False: "no", None: ""}
    prices = {f"{name}_price": getattr(spec.prices, name) for name in PRICES if spec.prices_source is stated}
    return {
        "alias": spec.alias,
        "litellm_model": spec.litellm_model,
        "api_base": spec.api_base,
        "api_key_env": entry.api_key_env,
        "context_window": spec.context_window if spec.context_window_source is stated else None,
        "max_output_tokens": spec.max_output_tokens if spec.max_output_source is stated else None,
        **{name: chosen[getattr(spec, name)] for name in ("takes_pictures", "takes_documents", "takes_audio")},
        "through_gateway": spec.through_gateway,
        "timeout_seconds": f"{spec.timeout_seconds:.10g}",
        "total_timeout_seconds": f"{spec.total_timeout_seconds:.10g}",
        "fallbacks": ", ".join(spec.fallbacks),
        "parameters": json.dumps(spec.parameters.as_dict(), ensure_ascii=False) if spec.parameters.as_dict() else "",
        "cache": spec.cache,
        **audience_initial(is_restricted=entry.is_restricted, groups=entry.groups, users=entry.users),
        **{name: None if micros is None else f"{micros / model_store.MICROS:.10g}" for name, micros in prices.items()},
    }


def check_reached(form: forms.BaseForm, alias: str, values: dict[str, Any]) -> None:
    try:
        model_store.check_entered(alias, **{name: values[name] for name in REACHED})
    except NotListed as error:
        form.add_error(str(error.details["field"]), error_text(error))


@signed_in
def models(request: HttpRequest) -> HttpResponse:
    if not may_administer(request, CHANGE):
        return render(request, "sessions_app/models/models.html", {"models": list_models(user_id=reader_of(request))})
    may = {"may_add": may_administer(request, ADD), "may_remove": may_administer(request, REMOVE)}
    return render(request, "sessions_app/models/entries.html", {"entries": model_store.list_model_entries()} | may)


@administrators(ADD)
def model_add(request: HttpRequest) -> HttpResponse:
    return _enter(request, None)


@administrators(CHANGE)
def model_change(request: HttpRequest, alias: str) -> HttpResponse:
    return _enter(request, _entry(alias))


@administrators(CHANGE, methods=("POST",))
def model_check(request: HttpRequest, alias: str) -> HttpResponse:
    try:
        _check(request, alias)
    except ModelNotFoundError:
        raise Http404 from None
    return redirect(_entry_url(alias))


def _check(request: HttpRequest, alias: str) -> None:
    """:raises ModelNotFoundError: there is no such model."""
    name, (result, _found) = excerpt(alias, NAME_LENGTH), model_store.check_model(alias)
    if result.is_good:
        seconds = localised(f"{result.milliseconds / 1000:.1f}") + " s"
        said = {"model": name, "duration": seconds, "answer": excerpt(result.answer, 80)}
        messages.success(request, gettext("%(model)s answered after %(duration)s: “%(answer)s”.") % said)
    else:
        said = {"model": name, "problem": excerpt(kept_error_text(result.problem, result.code), 300)}
        messages.error(request, gettext("%(model)s gave no answer: %(problem)s") % said)


@administrators(REMOVE)
def model_remove(request: HttpRequest, alias: str) -> HttpResponse:
    entry = _entry(alias)
    if entry.is_shipped:
        raise Http404
    if request.method != "POST":
        return render(request, "sessions_app/models/remove.html", {"entry": entry})
    model_store.remove_model(alias)
    text = gettext("%(model)s was removed. No session can use it any more.")
    messages.success(request, text % {"model": excerpt(alias, NAME_LENGTH)})
    return redirect("models")


def _entry(alias: str) -> model_store.ModelEntry:
    entry = model_store.find_model_entry(alias)
    if entry is None:
        raise Http404
    return entry


def _enter(request: HttpRequest, entry: model_store.ModelEntry | None) -> HttpResponse:
    form = ModelForm(request.POST if request.method == "POST" else None, entry=entry)
    if request.method != "POST" or not form.is_valid():
        context = {"form": form, "entry": entry, "providers": PROVIDERS}
        return render(request, "sessions_app/models/form.html", context)
    spec: ModelSpec = form.cleaned_data["spec"]
    variable = form.cleaned_data["api_key_env"]
    model_store.enter_model(spec, api_key_env=variable, key=form.entered_key, audience=form.chosen_audience)
    if "check" in request.POST:
        _check(request, spec.alias)
    else:
        text = gettext("%(model)s is saved. Check it to see whether it answers.")
        messages.success(request, text % {"model": excerpt(spec.alias, NAME_LENGTH)})
    return redirect(_entry_url(spec.alias))


@signed_in
def known_models(request: HttpRequest) -> HttpResponse:
    """Show the names that litellm's table has of a provider, and what it says of the one that is entered."""
    if not (may_administer(request, ADD) or may_administer(request, CHANGE)):
        raise Http404
    name = request.GET.get("litellm_model", "")[:200]
    known = list_known_models(provider_of(name))
    found = [
        ModelSpec(alias=name, litellm_model=name, **settle_limits(limits)) for model, limits in known if model == name
    ]
    return render(request, "sessions_app/models/_known.html", {"known": known, "found": found})


def _entry_url(alias: str) -> str:
    return f"{reverse('models')}#model-{quote(alias, safe='')}"
