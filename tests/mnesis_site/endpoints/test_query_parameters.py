"""A query parameter that a REST call does not take is refused, not ignored; OpenAI's clients may send what they like."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from ninja.operation import Operation

from mnesis_core.errors import UnknownParameter
from mnesis_site.endpoints import api, openai_api
from tests.support.documents.openapi_document import openapi_document


def operations() -> Iterator[tuple[str, Operation]]:
    """Every call of the REST API, with its path."""
    for router in api._get_bound_routers():
        for path, view in router.path_operations.items():
            yield from ((path, operation) for operation in view.operations)


OPERATIONS = {f"{'/'.join(operation.methods)} {path}": operation for path, operation in operations()}


@pytest.fixture
def reader(ada: User) -> Client:
    client = Client()
    client.force_login(ada)
    return client


@cache
def described() -> dict[str, list[str]]:
    """The query parameters that the OpenAPI document names for each call."""
    return {
        f"{method.upper()} {path.removeprefix('/api')}": sorted(
            parameter["name"] for parameter in call.get("parameters", []) if parameter["in"] == "query"
        )
        for path, calls in openapi_document()["paths"].items()
        for method, call in calls.items()
    }


@pytest.mark.slow
def test_every_call_refuses_a_parameter_that_it_does_not_take() -> None:
    assert len(OPERATIONS) > 60
    for name, operation in OPERATIONS.items():
        taken = described()[name]
        request = RequestFactory().get("/", {"no_such": "1"} | dict.fromkeys(taken, "1"))
        with pytest.raises(UnknownParameter) as refused:
            operation.view_func(request)
        assert refused.value.details == {"unknown": ["no_such"], "known": taken}, name


def test_a_filter_that_the_search_does_not_take_is_named_with_those_that_it_takes(reader: Client) -> None:
    answered = reader.get("/api/search?q=marigold&session_id=sess_1")
    error = answered.json()["error"]
    assert (answered.status_code, error["code"]) == (422, "UNKNOWN_PARAMETER")
    assert error["message"].startswith(
        "This call has no query parameter 'session_id'. It takes around, branch, compacted, "
    )
    assert error["details"]["unknown"] == ["session_id"]


def test_a_call_without_parameters_says_so(reader: Client) -> None:
    answered = reader.get("/api/models?" + "x" * 5_000 + "=1&\x00=2")
    assert answered.status_code == 422
    assert answered.json()["error"]["message"] == "This call has no query parameter '\\x00'. It takes none."
    assert max(map(len, answered.json()["error"]["details"]["unknown"])) == 100


def test_who_is_not_signed_in_learns_nothing_of_parameters(db: None) -> None:
    answered = Client().get("/api/models?no_such=1")
    assert (answered.status_code, answered.json()["error"]["code"]) == (401, "NOT_SIGNED_IN")


def test_the_endpoint_for_openai_clients_ignores_what_it_does_not_know() -> None:
    views = [
        operation.view_func
        for router in openai_api._get_bound_routers()
        for view in router.path_operations.values()
        for operation in view.operations
    ]
    assert views
    assert not [view for view in views if view.__module__ == "mnesis_site.endpoints" or hasattr(view, "__wrapped__")]
