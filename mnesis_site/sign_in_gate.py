"""Before and after anything else is done with a request to sign in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from mnesis_site.devices import remember_device


class SignInGate:
    """Middleware: whoever has signed in gets a cookie for the device."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Pass the request on and look at the response."""
        response = self.get_response(request)
        if isinstance(response, HttpResponseBase):
            return remember_device(request, response)
        return self._later(request, response)

    async def _later(self, request: HttpRequest, response: Awaitable[HttpResponseBase]) -> HttpResponseBase:
        return remember_device(request, await response)
