"""The pages of models: those that a person may use, and for administrators all of them."""

from __future__ import annotations

from urllib.parse import quote

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from mnesis_core.errors import ModelNotFoundError
from mnesis_core.text import excerpt
from sessions_app.catalogue.forms import ModelForm
from sessions_app.catalogue.model_catalogue import check_model
from sessions_app.catalogue.model_queries import ModelEntry, find_model_entry, list_model_entries
from sessions_app.catalogue.model_store import enter_model, remove_model
from sessions_app.conf import list_models
from sessions_app.pages.permissions import administrators, may_administer
from sessions_app.pages.views import reader_of, signed_in

ADD, CHANGE, REMOVE = (f"sessions_app.{verb}_languagemodel" for verb in ("add", "change", "delete"))
NAME_LENGTH = 60


@signed_in
def models(request: HttpRequest) -> HttpResponse:
    if not may_administer(request, CHANGE):
        return render(request, "sessions_app/models.html", {"models": list_models(user_id=reader_of(request))})
    may = {"may_add": may_administer(request, ADD), "may_remove": may_administer(request, REMOVE)}
    return render(request, "sessions_app/model_entries.html", {"entries": list_model_entries()} | may)


@administrators(ADD)
def model_add(request: HttpRequest) -> HttpResponse:
    return _enter(request, None)


@administrators(CHANGE)
def model_change(request: HttpRequest, alias: str) -> HttpResponse:
    return _enter(request, _entry(alias))


@administrators(CHANGE, methods=("POST",))
def model_check(request: HttpRequest, alias: str) -> HttpResponse:
    name = excerpt(alias, NAME_LENGTH)
    try:
        result, _ = check_model(alias)
    except ModelNotFoundError:
        raise Http404 from None
    if result.is_good:
        seconds = f"{result.milliseconds / 1000:.1f} s"
        messages.success(request, f"{name} answered after {seconds}: “{excerpt(result.answer, 80)}”.")
    else:
        messages.error(request, f"{name} gave no answer: {excerpt(result.problem, 300)}")
    return redirect(_entry_url(alias))


@administrators(REMOVE)
def model_remove(request: HttpRequest, alias: str) -> HttpResponse:
    entry = _entry(alias)
    if entry.is_shipped:
        raise Http404
    if request.method != "POST":
        return render(request, "sessions_app/model_remove.html", {"entry": entry})
    remove_model(alias)
    messages.success(request, f"{excerpt(alias, NAME_LENGTH)} is removed: no session can use it from now on.")
    return redirect("models")


def _entry(alias: str) -> ModelEntry:
    entry = find_model_entry(alias)
    if entry is None:
        raise Http404
    return entry


def _enter(request: HttpRequest, entry: ModelEntry | None) -> HttpResponse:
    form = ModelForm(request.POST if request.method == "POST" else None, entry=entry)
    if request.method != "POST" or not form.is_valid():
        return render(request, "sessions_app/model_form.html", {"form": form, "entry": entry})
    enter_model(form.spec, api_key_env=form.cleaned_data["api_key_env"], audience=form.chosen_audience)
    alias = form.spec.alias
    messages.success(request, f"{excerpt(alias, NAME_LENGTH)} is saved. Check it to see whether it answers.")
    return redirect(_entry_url(alias))


def _entry_url(alias: str) -> str:
    return f"{reverse('models')}#model-{quote(alias, safe='')}"
