"""The languages of pages: the reader's choice, else the browser's. Programs and workers always read English.

Of what a page's script is answered by an endpoint for programs, only errors are in its language (``mnesis_site.errors``).

What is written into the record, what a model reads, and what programs are answered is never translated.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.locale import LocaleMiddleware
from django.urls import reverse
from django.utils import translation
from django.views.decorators.cache import cache_control
from django.views.i18n import JavaScriptCatalog

from mnesis_core.errors import NotFound
from mnesis_site.errors import PROGRAM_PATHS
from mnesis_site.middleware import InLoop

YEAR_SECONDS = 31_536_000
_catalogue = JavaScriptCatalog.as_view(packages=["mnesis_site"])


class Language(InLoop, LocaleMiddleware):
    def process_request(self, request: HttpRequest) -> None:
        if request.path.startswith(PROGRAM_PATHS):
            translation.activate(settings.LANGUAGE_CODE)
        else:
            super().process_request(request)

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        return response if request.path.startswith(PROGRAM_PATHS) else super().process_response(request, response)


def language(request: HttpRequest) -> dict[str, Any]:
    """The context processor: the page's language, and the address of its texts for scripts, if they need any."""
    code = translation.get_language() or settings.LANGUAGE_CODE
    return {
        "LANGUAGES": settings.LANGUAGES,
        "LANGUAGE_CODE": code,
        "LANGUAGE_BIDI": translation.get_language_bidi(),
        "script_texts": reverse("script-texts", args=[code, settings.LOCALE_DIGEST])
        if code != settings.LANGUAGE_CODE
        else "",
    }


@cache_control(max_age=YEAR_SECONDS, public=True, immutable=True)
def script_texts(request: HttpRequest, code: str, digest: str) -> HttpResponseBase:
    """The translated texts of scripts, as a script. The digest in its address changes with them."""
    if code not in dict(settings.LANGUAGES):
        raise NotFound()
    with translation.override(code):
        return _catalogue(request)
