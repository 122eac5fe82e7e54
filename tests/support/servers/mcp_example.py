"""A tool server as anybody writes one, with the official SDK: ``python mcp_example.py stdio`` or ``… http PORT``."""

from __future__ import annotations

import io
import os
import sys
import wave
from pathlib import Path

import anyio
from mcp.server.mcpserver import Audio, Image, MCPServer
from PIL import Image as Drawing

server = MCPServer("example")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def refuse(reason: str) -> str:
    """Always fail."""
    raise ValueError(reason)


@server.tool()
async def wait(seconds: float) -> str:
    """Answer late."""
    await anyio.sleep(seconds)
    return "late"


@server.tool()
def recite(characters: int) -> str:
    """Say a lot."""
    return "x" * characters


@server.tool()
def draw(width: int, height: int, count: int = 1) -> list[str | Image]:
    """Draw pictures, with a word before and after each."""
    said: list[str | Image] = []
    for number in range(count):
        out = io.BytesIO()
        Drawing.linear_gradient("L").resize((width, height + number)).save(out, "PNG")
        said += [f"before {number}", Image(data=out.getvalue(), format="png"), f"after {number}"]
    return said


@server.tool()
def hum() -> Audio:
    """Hum a second of silence."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, 8_000, 0, "NONE", ""))
        file.writeframes(bytes(16_000))
    return Audio(data=out.getvalue(), format="wav")


@server.tool()
def surroundings() -> str:
    """Which environment variables, working directory and process this is."""
    return f"{' '.join(sorted(os.environ))} | {os.environ.get('TOKEN', '')} | {Path.cwd()} | {os.getpid()}"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
