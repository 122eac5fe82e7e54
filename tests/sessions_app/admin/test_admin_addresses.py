"""Hostile addresses of the inspector: what was written by hand is refused or not found, and never a server error."""

from __future__ import annotations

import pytest
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from agents_app.models import OperatorItem
from sessions_app.models import ApiKey, LanguageModel, Organisation, Session
from tests.sessions_app.admin.test_admin import RECORD_MODELS, session_id
from tests.support.record.inspected import list_of

__all__ = ["session_id"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("q=%00", 400),
        ("session=%00", 400),
        ("q=" + "x" * 60_000, 200),
        ("q=%ED%A0%80", 200),
        ("session=nobody", 200),
        ("p=999999999999999999999", 200),
        ("p=x&o=x.y.z&e=1", 200),
        ("salt__startswith=a", 400),
        ("secret_hash__startswith=a", 400),
        ("session__owner__password__startswith=m", 400),
        ("content__regex=(a%2B)%2B%24", 400),
        ("nonsense=1", 400),
        ("all=", 200),
    ],
)
def test_no_query_breaks_a_list(query: str, status: int, session_id: str, inspector: Client) -> None:
    for model in RECORD_MODELS:
        url = list_of(model)
        if query.startswith("session=nobody") and model in (Session, ApiKey, OperatorItem, Organisation):
            continue
        assert inspector.get(f"{url}?{query}").status_code == status, url


@pytest.mark.slow
@pytest.mark.parametrize(
    "key", ["%00", "x" * 5000, "9" * 5000, "99999999999999999999999", "%ED%A0%80", "sess_5F", "-1", "a/b"]
)
def test_no_key_breaks_a_page(key: str, inspector: Client) -> None:
    for model in RECORD_MODELS:
        base = list_of(model)
        assert inspector.get(f"{base}{key}/change/").status_code == 404
        assert inspector.get(f"{base}{key}/text/content/").status_code == 404


@pytest.mark.parametrize("model", [LanguageModel, ApiKey])
def test_an_empty_name_of_a_column_is_none(model: type[Model], inspector: Client) -> None:
    url = reverse(f"admin:{model._meta.label_lower.replace('.', '_')}_delete", args=["nosuch"])
    assert inspector.get(f"{url}?_to_field=", follow=True).status_code in (200, 403, 404)
