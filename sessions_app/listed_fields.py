"""Fields of forms for what the host's owner lists: what is listed can be chosen, and beside it stands where more is."""

from __future__ import annotations

from django import forms

from mnesis_core.host_lists import ADDRESSES, PROGRAMS, VARIABLES, HostLists

BY_COMMAND = "What else there is can be entered by a command on the host."


def offer_variables(field: forms.Field, lists: HostLists, *, current: str = "") -> None:
    """Let one of the listed variables be chosen; the one that a command has entered stays what it is."""
    places: dict[str, list[str]] = {}
    for variable in lists.variables:
        places.setdefault(variable.name, []).append(variable.origin or "the provider's own address")
    choices = [(name, f"{name}, for {', '.join(origins)}") for name, origins in places.items()]
    _offer(field, choices, current=current, nothing="none")
    field.help_text = f"{field.help_text} {_said('variable', VARIABLES, is_empty=not choices)}"


def say_variables(field: forms.Field, lists: HostLists) -> None:
    """Say which variables are listed, and for where."""
    listed = ", ".join(map(str, lists.variables))
    field.help_text = f"{field.help_text} {_said('variable', VARIABLES, listed=listed, is_empty=not listed)}"


def offer_programs(field: forms.Field, lists: HostLists, *, current: str = "") -> None:
    """Let one of the listed programs be chosen, or say which there are where arguments may follow."""
    entries = [str(program) for program in lists.programs]
    if entries and not any(program.takes_more for program in lists.programs):
        _offer(field, [(entry, entry) for entry in entries], current=current, nothing="none: the server has an address")
        entries = []
    listed = "; ".join(entries)
    field.help_text = f"{field.help_text} {_said('program', PROGRAMS, listed=listed, is_empty=not lists.programs)}"


def say_addresses(field: forms.Field, lists: HostLists) -> None:
    """Say which addresses inside the network there may be."""
    listed = ", ".join(map(str, lists.addresses))
    inside = f"Inside this network ({ADDRESSES}): {listed}." if listed else f"A public one: {ADDRESSES} lists no other."
    field.help_text = f"{field.help_text} {inside}"


def _offer(field: forms.Field, choices: list[tuple[str, str]], *, current: str, nothing: str) -> None:
    if not choices:
        return
    kept = [(current, f"{current}, as it is")] if current and current not in dict(choices) else []
    field.widget = forms.Select(choices=[("", nothing), *kept, *choices])


def _said(kind: str, setting: str, *, listed: str = "", is_empty: bool) -> str:
    if is_empty:
        return f"No {kind} is listed on this host ({setting}). {BY_COMMAND}"
    return (
        f"Listed on this host ({setting}): {listed}. {BY_COMMAND}"
        if listed
        else f"As {setting} lists them. {BY_COMMAND}"
    )
