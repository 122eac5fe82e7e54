"""A tab of Chromium, driven through the tab instead of its page.

A browser that is driven through a page, as Playwright does, renders no page in advance, since such a page takes the other's
place (the DevTools protocol's ``Target`` domain).
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from websockets.sync.client import ClientConnection, connect


@contextmanager
def open_tab(command: Sequence[str], cookies: Sequence[dict[str, Any]]) -> Iterator[Tab]:
    """Start a browser with one tab, of 1280 by 900 pixels."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = (
            "--headless=new",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "--window-size=1280,900",
        )
        log = Path(profile) / "log"
        with log.open("w") as written, subprocess.Popen([*command, *options, "about:blank"], stderr=written) as process:
            try:
                with connect(_address(log), max_size=None) as socket:
                    tab = Tab(socket)
                    tab.send("Storage.setCookies", cookies=list(cookies))
                    yield tab
            finally:
                process.terminate()


def _address(log: Path) -> str:
    for _ in range(300):
        if found := re.search(r"ws://\S+", log.read_text()):
            return found[0]
        time.sleep(0.1)
    raise AssertionError("the browser does not answer")


class Tab:
    """The page that is shown in it is another one after each navigation to a page that was rendered in advance."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._numbers = socket, count(1)
        self._pages: list[str] = []
        [tab] = self.send("Target.getTargets", filter=[{"type": "tab"}])["targetInfos"]
        session = self.send("Target.attachToTarget", targetId=tab["targetId"], flatten=True)["sessionId"]
        self.send("Target.setAutoAttach", session, autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
        self._page = self._shown()

    def send(self, method: str, session: str = "", **parameters: Any) -> Any:
        """Return the result of a command.

        :raises RuntimeError: the browser refused it.
        """
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        self._socket.send(json.dumps(command))
        while True:
            answer = json.loads(self._socket.recv(timeout=60))
            if answer.get("id") == number:
                break
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def visit(self, address: str, seconds: float) -> None:
        """Open a page, and leave it so long."""
        self.send("Page.navigate", self._page, url=address)
        self.wait(seconds)

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page that is shown."""
        found = self.send("Runtime.evaluate", self._page, expression=script, returnByValue=True, awaitPromise=True)
        return found["result"].get("value")

    def move(self, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", self._page, type="mouseMoved", x=x, y=y)

    def press(self, x: float, y: float) -> None:
        self._button("mousePressed", x, y)

    def release(self, x: float, y: float) -> None:
        self._button("mouseReleased", x, y)

    def wait(self, seconds: float) -> None:
        """Let the browser work, and look which page it shows then."""
        time.sleep(seconds)
        self._page = self._shown()

    def _button(self, kind: str, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", self._page, type=kind, x=x, y=y, button="left", clickCount=1)

    def _note(self, event: dict[str, Any]) -> None:
        about = event["params"]
        if event["method"] == "Target.attachedToTarget" and about["targetInfo"]["type"] == "page":
            self._pages.append(about["sessionId"])
        elif event["method"] == "Target.detachedFromTarget" and about["sessionId"] in self._pages:
            self._pages.remove(about["sessionId"])

    def _shown(self) -> str:
        self.send("Target.getTargets")  # what happened before its answer is known then
        for page in reversed(self._pages):
            found = self.send("Runtime.evaluate", page, expression="document.prerendering", returnByValue=True)
            if found["result"].get("value") is False:
                return page
        raise AssertionError("the tab shows no page")
