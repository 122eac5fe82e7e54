"""Who may use what administrators enter, as the end of a form: everybody, or groups and people by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib.auth.models import User

from mnesis_core.text import encode_text
from sessions_app.queries.models import find_users, list_groups
from sessions_app.store.models import Audience

EVERYBODY, NAMED = "everybody", "named"


class AudienceFields(forms.Form):
    """The fields; whoever has them calls ``check_audience`` when it cleans."""

    audience = forms.ChoiceField(
        choices=[(EVERYBODY, "Everybody"), (NAMED, "Only these groups and people")],
        initial=EVERYBODY,
        widget=forms.RadioSelect,
        label="Who may use it",
        help_text="For anybody else it is not there. Administrators who may everything may use it too.",
    )
    groups = forms.MultipleChoiceField(required=False, widget=forms.CheckboxSelectMultiple, label="Groups")
    users = forms.CharField(
        required=False,
        max_length=10_000,
        widget=forms.Textarea(attrs={"rows": 2}),
        label="People",
        help_text="User names, separated by commas or lines.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._groups = {group.name: group for group in list_groups()}
        self.fields["groups"].choices = [(name, name) for name in self._groups]  # type: ignore[attr-defined]

    def clean_users(self) -> list[User]:
        """Accounts that there are."""
        names = set(names_in(self.cleaned_data["users"].replace("\n", ",")))
        found = find_users(names)
        missing = {encode_text(name) for name in names} - {user.get_username() for user in found}
        if missing:
            raise forms.ValidationError(f"Nobody is called {', '.join(sorted(missing))}.")
        return found

    def check_audience(self, values: dict[str, Any]) -> None:
        """What is not for everybody is for somebody."""
        if values.get("audience") == NAMED and not self.errors and not (values["groups"] or values["users"]):
            self.add_error("audience", "Name a group or a person, or let everybody use it.")

    @property
    def chosen_audience(self) -> Audience | None:
        """Whom it is for, ``None`` for everybody; only of a form that is valid."""
        values = self.cleaned_data
        if values["audience"] == EVERYBODY:
            return None
        return Audience(groups=[self._groups[name] for name in values["groups"]], users=values["users"])


def audience_initial(*, is_restricted: bool, groups: Sequence[str], users: Sequence[str]) -> dict[str, Any]:
    """What the fields show of what was said before."""
    return {
        "audience": NAMED if is_restricted else EVERYBODY,
        "groups": list(groups),
        "users": ", ".join(users),
    }


def names_in(text: str) -> list[str]:
    """The names that commas separate."""
    return [name for name in map(str.strip, text.split(",")) if name]
