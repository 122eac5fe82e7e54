"""An API on loopback with an OpenAPI document, and with operations that cannot be tools or that fail."""

from __future__ import annotations

import gzip
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.material.drawings import drawing
from tests.support.providers.threaded_server import QuietHandler, ThreadedServer

PICTURE = drawing(30, 20)
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
DOCUMENT: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Harbour", "version": "1"},
    "servers": [{"url": "/v{version}", "variables": {"version": {"default": "2"}}}],
    "paths": {
        "/harbours/{harbour}/tides": {
            "parameters": [{"$ref": "#/components/parameters/Harbour"}],
            "get": {
                "operationId": "listTides",
                "summary": "The tides of a harbour.",
                "parameters": [
                    {"name": "day", "in": "query", "schema": TEXT, "description": "As 2026-11-30."},
                    {"name": "kind", "in": "query", "schema": {"type": "array", "items": TEXT}},
                    {"name": "X-Unit", "in": "header", "schema": TEXT},
                    {"name": "Authorization", "in": "header", "schema": TEXT},
                    {"name": "theme", "in": "cookie", "schema": TEXT},
                ],
            },
        },
        "/notes": {
            "post": {
                "operationId": "notes.add",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Note"}}},
                },
            }
        },
        "/notes/{id}": {
            "delete": {"parameters": [{"name": "id", "in": "path", "required": True, "schema": NUMBER}]},
            "put": {
                "operationId": "replace",
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "schema": NUMBER},
                    {"name": "id", "in": "query", "schema": TEXT},
                ],
                "requestBody": {
                    "content": {"application/x-www-form-urlencoded": {"schema": {"$ref": "#/components/schemas/Note"}}}
                },
            },
        },
        "/picture": {"get": {"operationId": "picture"}},
        "/program": {"get": {"operationId": "program"}},
        "/refused": {"get": {"operationId": "refused"}},
        "/moved": {"get": {"operationId": "moved"}},
        "/bomb": {"get": {"operationId": "bomb"}},
        "/upload": {
            "post": {
                "operationId": "upload",
                "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": {"type": "object"}}}},
            }
        },
        "/elsewhere": {"get": {"operationId": "elsewhere", "servers": [{"url": "https://evil.example/"}]}},
        "@evil.example/": {"get": {"operationId": "sideways"}},
        "/outside": {"get": {"operationId": "outside", "parameters": [{"$ref": "https://evil.example/#/a"}]}},
    },
    "components": {
        "parameters": {"Harbour": {"name": "harbour", "in": "path", "required": True, "schema": TEXT}},
        "schemas": {
            "Note": {
                "type": "object",
                "required": ["text"],
                "properties": {
                    "text": {"type": "string", "example": "High"},
                    "example": {"type": "string", "nullable": True},
                    "answers": {"type": "array", "items": {"$ref": "#/components/schemas/Note"}},
                },
            }
        },
    },
}
"""A schema that contains itself, a parameter by reference, and each way in which an operation cannot be a tool."""


class _Harbour(QuietHandler):
    server: OpenAPIServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length", 0))
        asked = {
            "method": self.command,
            "path": parts.path,
            "query": parse_qs(parts.query),
            "headers": dict(self.headers),
            "body": self.rfile.read(length).decode(),
        }
        self.server.requests.append(asked)
        said = json.dumps({name: asked[name] for name in ("method", "path", "query", "body")}).encode()
        match parts.path:
            case "/openapi.json":
                self.answer(200, {"Content-Type": "application/json"}, json.dumps(self.server.document).encode())
            case "/v2/picture":
                self.answer(200, {"Content-Type": "image/png"}, PICTURE)
            case "/v2/program":
                self.answer(200, {"Content-Type": "application/octet-stream"}, bytes(500))
            case "/v2/refused":
                self.answer(403, {"Content-Type": "text/plain"}, b"Not for you: <script>alert(1)</script>")
            case "/v2/moved":
                self.answer(302, {"Location": "http://169.254.169.254/latest"}, b"")
            case "/v2/bomb":
                self.answer(200, {"Content-Encoding": "gzip", "Content-Type": "text/plain"}, self.server.bomb)
            case path if self.command == "DELETE" and path.startswith("/v2/notes/"):
                self.answer(204, {}, b"")
            case _:
                self.answer(200, {"Content-Type": "application/json"}, said)

    do_POST = do_PUT = do_DELETE = do_GET


class OpenAPIServer(ThreadedServer):
    """Use as a context manager."""

    def __init__(self) -> None:
        super().__init__(_Harbour)
        self.document: Any = DOCUMENT
        self.bomb = gzip.compress(bytes(30_000_000))
