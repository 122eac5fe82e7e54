"""What staff enter about a person. Only what they may give can be chosen."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib.auth.models import Group, User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from mnesis_core.network.people import Role, Standing, groups_to_give, roles_to_give
from mnesis_core.text import without_hidden
from mnesis_site.people.accounts import Account, list_groups, seen_by
from sessions_app.record.organisation_store import are_several, list_organisations

MICROS = 1_000_000
LARGEST = 10**12
ROLES = {
    Role.MEMBER: _("Member: uses Mnesis"),
    Role.STAFF: _("Staff: also sees the pages for staff that their groups permit"),
    Role.ADMINISTRATOR: _("Administrator: may do everything"),
}
_SELECT = {"class": "input"}
_NUMBER: dict[str, Any] = {"required": False, "max_value": LARGEST}


class AccountFields(forms.Form):
    email = forms.EmailField(
        required=False,
        max_length=254,
        label=_("Email address"),
        widget=forms.EmailInput(attrs={"class": "input", "autocomplete": "off"}),
    )
    role = forms.ChoiceField(label=_("Role"), widget=forms.Select(attrs=_SELECT))
    groups = forms.TypedMultipleChoiceField(
        required=False,
        coerce=int,
        widget=forms.CheckboxSelectMultiple,
        label=_("Groups"),
        help_text=_("Groups grant permissions, and access to models and tools that are limited to them."),
    )

    def __init__(self, actor: Standing, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = list_groups()
        givable = groups_to_give(actor, names)
        self._choose("role", [(role.value, ROLES[role]) for role in roles_to_give(actor)])
        self._choose("groups", [(id, name) for id, name in names.items() if id in givable])

    def _choose(self, name: str, choices: Sequence[tuple[Any, str | Promise]]) -> None:
        self.fields[name].choices = choices  # type: ignore[attr-defined]

    def clean_role(self) -> Role:
        return Role(self.cleaned_data["role"])


class InviteForm(AccountFields):
    username = forms.CharField(
        max_length=150,
        validators=[UnicodeUsernameValidator()],
        label=_("Username"),
        help_text=_("Letters, digits and @ . + - _"),
        widget=forms.TextInput(attrs={"class": "input", "autocomplete": "off", "autocapitalize": "none"}),
    )
    organisation_id = forms.ChoiceField(label=_("Organisation"), widget=forms.Select(attrs=_SELECT))
    field_order = ("username", "email", "role", "organisation_id", "groups")

    def __init__(self, actor: Standing, *args: Any, **kwargs: Any) -> None:
        super().__init__(actor, *args, **kwargs)
        if actor.is_administrator and are_several():
            self._choose("organisation_id", [(one.id, one.name or one.slug) for one in list_organisations()])
            self.initial.setdefault("organisation_id", actor.organisation_id)
        else:
            del self.fields["organisation_id"]

    def clean_username(self) -> str:
        name: str = User.normalize_username(self.cleaned_data["username"])
        # Names that differ in case alone would be taken for one another.
        if User.objects.filter(username__iexact=name).exists():
            raise forms.ValidationError(_("Another account has this name."))
        return name


class AccountForm(AccountFields):
    version = forms.CharField(max_length=16, widget=forms.HiddenInput)

    def __init__(self, actor: Standing, account: Account, *args: Any, **kwargs: Any) -> None:
        super().__init__(actor, *args, **kwargs)
        self.initial = {
            "email": account.email,
            "role": account.role.value,
            "groups": sorted(account.group_ids),
            "version": account.version,
        }
        if actor.id == account.id:
            self._choose("role", [(account.role.value, ROLES[account.role])])
            self.fields["role"].help_text = _("No one can change their own role.")
        chosen = dict(self.fields["groups"].choices)  # type: ignore[attr-defined]
        self.others = [name for id, name in list_groups().items() if id in account.group_ids and id not in chosen]


class GroupForm(forms.Form):
    name = forms.CharField(
        max_length=150, label=_("Name"), widget=forms.TextInput(attrs={"class": "input", "autocomplete": "off"})
    )

    def __init__(self, *args: Any, group_id: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._group_id = group_id

    def clean_name(self) -> str:
        name = " ".join(self.cleaned_data["name"].split())
        if name != without_hidden(name):
            raise forms.ValidationError(_("The name contains characters that cannot be seen."))
        # Names that differ in case alone would be taken for one another.
        if Group.objects.filter(name__iexact=name).exclude(pk=self._group_id).exists():
            raise forms.ValidationError(_("Another group has this name."))
        return name


class MemberForm(forms.Form):
    username = forms.CharField(
        max_length=150,
        label=_("Username of a new member"),
        widget=forms.TextInput(
            attrs={"class": "input", "autocomplete": "off", "autocapitalize": "none", "list": "candidates"}
        ),
    )

    def __init__(self, actor: Standing, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._actor = actor

    def clean_username(self) -> str:
        """Find the account, which is ``user`` then."""
        name: str = User.normalize_username(self.cleaned_data["username"])
        user = seen_by(self._actor).filter(username=name).first()
        if user is None:
            raise forms.ValidationError(_("No account has this name."))
        self.user = user
        return name


class DayForm(forms.Form):
    cost = forms.DecimalField(
        label=_("Cost, in dollars"), min_value=Decimal("0.000001"), decimal_places=6, max_value=10**9, required=False
    )
    tokens = forms.IntegerField(label=_("Tokens"), min_value=1, **_NUMBER)
    seconds = forms.FloatField(label=_("Seconds at work"), min_value=1, **_NUMBER)
    tool_calls = forms.IntegerField(label=_("Tool calls"), min_value=1, **_NUMBER)
    before = forms.JSONField(widget=forms.HiddenInput, required=False)

    def __init__(self, day: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cost = day.get("cost_micros")
        shown = {name: day.get(name) or None for name in ("tokens", "seconds", "tool_calls")}
        self.initial = shown | {"cost": Decimal(cost) / MICROS if cost else None, "before": day}
        for name in ("cost", *shown):
            self.fields[name].widget.attrs |= {"class": "input", "placeholder": _("site limit"), "autocomplete": "off"}

    @property
    def day(self) -> dict[str, Any]:
        """Return the limits of a valid form, as a configuration has them."""
        values = self.cleaned_data
        cost = values["cost"]
        limits = {
            "tokens": values["tokens"],
            "cost_micros": None if cost is None else int(cost * MICROS),
            "seconds": values["seconds"],
            "tool_calls": values["tool_calls"],
        }
        return {name: value for name, value in limits.items() if value}
