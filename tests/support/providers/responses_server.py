"""A loopback server that answers like OpenAI's Responses: it reasons, encrypts that, and calls a tool."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.providers.strict import check_responses
from tests.support.providers.threaded_server import ThreadedServer

WINDOW = 400_000
SUMMARY = [{"type": "summary_text", "text": "Which shelf?"}]
ITEM = {"id": "rs_1", "type": "reasoning", "summary": SUMMARY, "encrypted_content": "gAAA"}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "shelf",
    "arguments": "{}",
    "status": "completed",
}


class ResponsesServer(ThreadedServer):
    """Thinks, and calls a tool. Use as a context manager."""

    def __init__(self) -> None:
        super().__init__(_Handler)


def _events() -> list[dict[str, Any]]:
    counted = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 2}}
    whole: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "gpt-5",
        "output": [ITEM, CALL],
        "usage": counted | details,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    text = {"item_id": "rs_1", "output_index": 0, "summary_index": 0, "delta": "Which shelf?"}
    pieces = {"item_id": "fc_1", "output_index": 1, "delta": "{}"}
    return [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": ITEM | {"summary": []}},
        {"type": "response.reasoning_summary_text.delta", **text},
        {"type": "response.output_item.done", "output_index": 0, "item": ITEM},
        {"type": "response.output_item.added", "output_index": 1, "item": CALL | {"arguments": ""}},
        {"type": "response.function_call_arguments.delta", **pieces},
        {"type": "response.output_item.done", "output_index": 1, "item": CALL},
        {"type": "response.completed", "response": whole},
    ]


class _Handler(BaseHTTPRequestHandler):
    server: ResponsesServer

    def do_POST(self) -> None:
        self.server.requests.append(body := json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        check_responses(body, WINDOW)
        frames = [
            f"event: {event['type']}\ndata: {json.dumps(event | {'sequence_number': number})}\n\n"
            for number, event in enumerate(_events())
        ]
        payload = "".join(frames).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""
